"""Ctrl-C comes before or after a change of weights, never in the middle."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

_held_to_the_end: ContextVar[ExitStack | None] = ContextVar("held_to_the_end", default=None)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back Ctrl-C until the end, or that of the ``in_one_piece`` around.

    >>> try:
    ...     with undisturbed():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("done")
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    done
    interrupted
    """
    around = _held_to_the_end.get()
    if around is None:
        with _holding():
            yield
    else:
        around.enter_context(_holding())
        yield


@contextmanager
def in_one_piece() -> Iterator[None]:
    """Ctrl-C ends what is done inside as usual until something is ``undisturbed``, and then waits for all the rest.

    >>> try:
    ...     with in_one_piece():
    ...         with undisturbed():
    ...             print("weights shared")
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("moments shared")
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    weights shared
    moments shared
    interrupted
    """
    with ExitStack() as stack:
        token = _held_to_the_end.set(stack)
        try:
            yield
        finally:
            _held_to_the_end.reset(token)


@contextmanager
def _holding() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *arguments: caught.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if caught and callable(before):
            before(*caught[0])
