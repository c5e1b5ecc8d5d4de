"""Messages about runs, through Python's ``logging`` under the name "sleepconv".

A program that configures ``logging`` gets them where it wants them. Otherwise they go to standard error, above progress
bars: information as it is, warnings and errors after "sleepconv: ".
"""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("sleepconv")
"""The logger of all messages; ``logger.setLevel("WARNING")`` silences what is not a warning."""


class _ToStandardError(logging.Handler):
    """A handler that writes to what is standard error at that moment, above progress bars."""

    def __init__(self, *, only_if_nobody_else: bool = False) -> None:
        super().__init__()
        self._last_resort = only_if_nobody_else

    def emit(self, record: logging.LogRecord) -> None:
        others = [handler for handler in (*logger.handlers, *logging.getLogger().handlers) if handler is not self]
        if sys.stderr is None or (self._last_resort and others):
            return
        text = record.getMessage() if record.levelno < logging.WARNING else f"sleepconv: {record.getMessage()}"
        if "tqdm" in sys.modules:  # there may be a progress bar
            sys.modules["tqdm"].tqdm.write(text, file=sys.stderr)
        else:
            sys.stderr.write(f"{text}\n")


if not logger.handlers:
    logger.addHandler(_ToStandardError(only_if_nobody_else=True))
if logger.level == logging.NOTSET:
    logger.setLevel(logging.INFO)


@contextmanager
def shown_on_standard_error() -> Iterator[None]:
    """Show messages, and warnings as lines among them, whatever else is configured: for a command.

    >>> with shown_on_standard_error():
    ...     logger.handlers[-1].level
    0
    """

    def show(message: Warning | str, *_: Any) -> None:
        logger.warning("%s", message)

    handler = _ToStandardError()
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show  # type: ignore[assignment]
            yield
    finally:
        logger.removeHandler(handler)
