"""The argument parser of all verbs."""

import argparse
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import Any

from sleepconv.names import did_you_mean

Verbs = argparse._SubParsersAction  # argparse has no public name for this class


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that suggests the nearest verb or choice for a misspelt one, and accepts ``--debug``.

    argparse uses the same class for verbs and actions, so ``--debug`` may come before or after a verb. ``details`` are
    text for the end of the help, made when somebody asks for it.
    """

    def __init__(self, *arguments: Any, details: Callable[[], str] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._details = details
        # With a default, a verb's parser would undo a --debug before the verb.
        self.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )

    def format_help(self) -> str:
        """Return the help, with the details below it."""
        return super().format_help() + ("" if self._details is None else f"\n{self._details()}\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [str(choice) for choice in action.choices or ()]
        if choices and value not in (action.choices or ()):
            raise argparse.ArgumentError(action, f"there is no {value!r}{did_you_mean(str(value), choices)}")
        super()._check_value(action, value)


class WithoutHeading(argparse.HelpFormatter):
    """A formatter that lists verbs on one line each, without their metavar above them, to fit on a screen."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, indent_increment=1, max_help_position=14)
        self._action_max_length = 14  # argparse forgets that verbs are indented twice

    def _format_action(self, action: argparse.Action) -> str:
        text = super()._format_action(action)
        return text.partition("\n")[2] if isinstance(action, argparse._SubParsersAction) else text


class Version(argparse.Action):
    """An option that shows versions and ends the program; PyTorch is not imported, which would take seconds."""

    def __init__(self, option_strings: list[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print the versions."""
        print(f"sleepconv {_version('sleepconv')} (Python {python_version()}, PyTorch {_version('torch')})")
        parser.exit()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
