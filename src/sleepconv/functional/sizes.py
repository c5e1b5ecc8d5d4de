"""Sizes as PyTorch's users write them: one number for all axes, or one per axis."""

from collections.abc import Sequence

Sizes = int | Sequence[int]


def per_axis(name: str, value: Sizes, axes: int, *, least: int = 1) -> tuple[int, ...]:
    """Spell out a size per axis.

    >>> per_axis("stride", 2, axes=3)
    (2, 2, 2)
    """
    values = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(values) != axes or any(isinstance(v, str) or v < least for v in values):
        raise ValueError(f"{name} is a whole number ≥ {least}, or {axes} of them (one per axis), not {value!r}")
    return values
