"""Signals that ask a run, a sweep or the demo to stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TrainingInterrupted(KeyboardInterrupt):
    """A run stopped where it was asked to; started again, it resumes.

    >>> TrainingInterrupted("stopped after step 12", exit_code=143).exit_code
    143
    """

    def __init__(self, text: str, exit_code: int = 130) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@contextmanager
def terminated_like_interrupted(text: str) -> Iterator[None]:
    """Raise an interrupt, as Ctrl-C does, when asked to terminate, so that everything is cleaned up.

    Signals can be handled on the main thread only; on others this does nothing.

    >>> with terminated_like_interrupted("stopped"):
    ...     pass
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: Any) -> None:
        raise TrainingInterrupted(text, 128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Interrupts:
    """A context that remembers the first Ctrl-C or request to terminate; the second takes effect at once.

    >>> with Interrupts() as interrupts:
    ...     interrupts.caught is None
    True
    """

    def __init__(self) -> None:
        self.caught: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            # Ctrl-C that is ignored, as under nohup or in the background of a script, is to stay so.
            ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            heard = [signal.SIGTERM] if ignored else [signal.SIGINT, signal.SIGTERM]
            self._before = {number: signal.signal(number, self._catch) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """Return what a shell expects of a program that a signal stopped."""
        return 128 + (self.caught or signal.SIGINT)

    def _catch(self, number: int, _: Any) -> None:
        if self.caught is not None:
            raise KeyboardInterrupt
        self.caught = number
