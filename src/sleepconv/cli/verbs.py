"""The argument parser of all verbs."""

import argparse
from typing import Any

from sleepconv.names import did_you_mean

Verbs = argparse._SubParsersAction  # argparse has no public name for this class


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that suggests the nearest verb or choice for a misspelt one, and accepts ``--debug``.

    argparse uses the same class for verbs and actions, so ``--debug`` may come before or after a verb.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # With a default, a verb's parser would undo a --debug before the verb.
        self.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [str(choice) for choice in action.choices or ()]
        if choices and value not in (action.choices or ()):
            raise argparse.ArgumentError(action, f"there is no {value!r}{did_you_mean(str(value), choices)}")
        super()._check_value(action, value)
