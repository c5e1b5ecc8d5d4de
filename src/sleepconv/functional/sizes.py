"""Sizes as PyTorch's users write them: one number for all axes, or one per axis."""

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

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
