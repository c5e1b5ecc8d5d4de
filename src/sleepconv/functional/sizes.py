"""Sizes as PyTorch's users write them (one int for all axes, or one per axis), and checks of single numbers."""

import sys
from collections.abc import Iterable, Sequence
from operator import index
from reprlib import repr as short
from typing import Any, SupportsFloat

Sizes = int | Sequence[int]
Padding = Sizes | str
Sides = Sequence[tuple[int, int]]


def output_size(
    input_size: Sequence[int],
    kernel_size: Sizes,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
) -> tuple[int, ...]:
    """Return the output size, as for a convolution: ⌊(n + p − d (k − 1) − 1) / s⌋ + 1 per axis, p counting both sides.

    >>> output_size((32, 32), 3, stride=2, padding=1)
    (16, 16)
    """
    axes = len(input_size)
    kernel, strides = per_axis("kernel_size", kernel_size, axes), per_axis("stride", stride, axes)
    dilations = per_axis("dilation", dilation, axes)
    sides = padding_sides(padding, kernel, strides, dilations)
    return padded_output_size(tuple(input_size), kernel, strides, sides, dilations)


def padded_output_size(
    input_size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], sides: Sides, dilation: Sequence[int]
) -> tuple[int, ...]:
    """Return the output size for padding that may differ between the two sides of an axis.

    >>> padded_output_size([5], [2], [1], [(0, 1)], [1])
    (5,)
    """
    sizes = tuple(
        (n + before + behind - d * (k - 1) - 1) // s + 1
        for n, (before, behind), k, s, d in zip(input_size, sides, kernel, stride, dilation, strict=True)
    )
    if any(size < 1 for size in sizes):
        raise ValueError(
            f"an input of size {tuple(input_size)} with padding={describe_padding(sides)} is smaller than a filter of "
            f"size {tuple(kernel)} with dilation={tuple(dilation)}"
        )
    return sizes


def padding_sides(
    padding: Padding, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Return the padding before and behind each axis; "same" puts the odd one behind, as ``conv2d`` does.

    >>> padding_sides("same", kernel=(2, 3), stride=(1, 1), dilation=(1, 1))
    ((0, 1), (1, 1))
    """
    if isinstance(padding, str) and padding == "valid":
        return ((0, 0),) * len(kernel)
    if isinstance(padding, str) and padding == "same":
        if any(s != 1 for s in stride):
            raise ValueError(f"padding='same' requires stride 1, got stride={tuple(stride)}")
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    if isinstance(padding, str):
        raise ValueError(f"`padding` must be an int, a tuple of ints, 'same' or 'valid', got {padding!r}")
    return tuple((p, p) for p in per_axis("padding", padding, len(kernel), least=0))


def describe_padding(sides: Sides) -> str:
    """Write padding as users do: one number per axis, or both sides where they differ.

    >>> describe_padding([(1, 1), (2, 2)]), describe_padding([(0, 1)])
    ('(1, 2)', '((0, 1),)')
    """
    return str(tuple(side[0] for side in sides) if all(a == b for a, b in sides) else tuple(sides))


def per_axis(name: str, value: Sizes, axes: int, *, least: int = 1) -> tuple[int, ...]:
    """Return one size per axis.

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
        raise ValueError(f"`{name}` must be an int or {axes} of them (one per axis), at least {least}, got {value!r}")
    return values


def check_int(name: str, value: int, *, least: int = 1) -> int:
    """Raise a ValueError unless the value is an int and not too small; return it as a plain int.

    >>> check_int("groups", 2)
    2
    """
    try:
        number = least - 1 if isinstance(value, bool) else index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"`{name}` must be an int, at least {least}, got {value!r}")
    return number


def check_divisible(name: str, value: int, divisor_name: str, divisor: int) -> None:
    """Raise a ValueError unless the value is a multiple of the divisor.

    >>> check_divisible("in_channels", 3, "groups", 2)
    Traceback (most recent call last):
    ValueError: `in_channels` (3) must be divisible by `groups` (2)
    """
    if value % check_int(divisor_name, divisor):
        raise ValueError(f"`{name}` ({value}) must be divisible by `{divisor_name}` ({divisor})")


def check_finite(
    name: str, value: Any, *, least: float | None = None, most: float | None = None, or_else: str = ""
) -> None:
    """Raise a ValueError unless the value is a number that fits a float, is finite and within the bounds.

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
