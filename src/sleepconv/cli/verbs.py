"""A parser whose errors suggest what was meant."""

import argparse
from difflib import get_close_matches
from typing import Any

Verbs = argparse._SubParsersAction  # argparse has no public name for it


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that answers a misspelt verb or choice with the nearest."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [str(choice) for choice in action.choices or ()]
        if choices and value not in (action.choices or ()):
            near = get_close_matches(str(value), choices, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(choices)}"
            raise argparse.ArgumentError(action, f"there is no {value!r}; {hint}")
        super()._check_value(action, value)
