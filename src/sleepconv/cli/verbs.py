"""A parser whose errors suggest what was meant, and that can show where they arose."""

import argparse
from typing import Any

from sleepconv.names import did_you_mean

Verbs = argparse._SubParsersAction  # argparse has no public name for it


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that answers a misspelt verb or choice with the nearest, and takes ``--debug``.

    The parsers of verbs and actions are of the same class, so that ``--debug`` may stand before and after a verb.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Without a default, lest a verb's parser undo what was said before the verb.
        self.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [str(choice) for choice in action.choices or ()]
        if choices and value not in (action.choices or ()):
            hint = did_you_mean(str(value), choices) or f"; there are {', '.join(choices)}"
            raise argparse.ArgumentError(action, f"there is no {value!r}{hint}")
        super()._check_value(action, value)
