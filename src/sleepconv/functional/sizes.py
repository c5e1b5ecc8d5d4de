"""Sizes as PyTorch's users write them: one number for all axes, or one per axis; and checks of single numbers."""

import sys
from collections.abc import Iterable, Sequence
from operator import index
from reprlib import repr as short
from typing import Any, SupportsFloat

Sizes = int | Sequence[int]


def per_axis(name: str, value: Sizes, axes: int, *, least: int = 1) -> tuple[int, ...]:
    """Spell out a size per axis.

    >>> per_axis("stride", 2, axes=3)
    (2, 2, 2)
    """
    listed = isinstance(value, Iterable) and not isinstance(value, (str, set, dict))
    entries: list[Any] = list(value) if listed else [value] * axes  # type: ignore[arg-type]
    try:
        values = tuple(index(entry) for entry in entries)
    except TypeError:
        values = ()
    if len(values) != axes or any(v < least for v in values):
        raise ValueError(f"{name} is a whole number ≥ {least}, or {axes} of them (one per axis), not {value!r}")
    return values


def whole(name: str, value: int, *, least: int = 1) -> int:
    """Check one whole number.

    >>> whole("groups", 2)
    2
    """
    try:
        number = least - 1 if isinstance(value, bool) else index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name} is a whole number ≥ {least}, not {value!r}")
    return number


def check_finite(
    name: str, value: Any, *, least: float | None = None, most: float | None = None, or_else: str = ""
) -> None:
    """Refuse what is no number, or one that is infinite, too large for a float, or out of bounds.

    >>> check_finite("decay", 10**400, least=0)
    Traceback (most recent call last):
    ValueError: `decay` must be a finite number, at least 0, got 100000000000000000...0000000000000000000
    """
    low, high = -sys.float_info.max if least is None else least, sys.float_info.max if most is None else most
    number = isinstance(value, SupportsFloat) and not isinstance(value, bool) and getattr(value, "ndim", 0) == 0
    if not number or not low <= value <= high:
        bounds = "" if least is None else f", at least {least:g}"
        bounds += "" if most is None else f", at most {most:g}"
        raise ValueError(f"`{name}` must be a finite number{bounds}{or_else and f', or {or_else}'}, got {short(value)}")
