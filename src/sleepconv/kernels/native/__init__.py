"""The compiled CPU kernel, called through ctypes so that it does not depend on a PyTorch version.

``kernels.h`` chooses: ``channels.h`` (large batches), ``across.h`` (small ones) or ``depthwise.h``. ``tile.h`` and
``transpose.h`` have the arithmetic, ``interface.cpp`` the threads and sharing. The library contains them for AVX-512,
AVX2 and any processor, and uses the best that this processor supports.
"""

import ctypes
import os
from enum import IntEnum
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from sleepconv.kernels import batched
from sleepconv.kernels.geometry import Axes, Geometry, empty_activations, position_major


class InstructionSet(IntEnum):
    """The instruction sets that the kernel is compiled for; higher is faster."""

    PORTABLE = 0
    AVX2 = 1
    AVX512 = 2


class _Pass(IntEnum):
    FORWARD = 0
    INPUT_GRADIENT = 1
    WEIGHT_GRADIENT = 2
    FORWARD_ON_GRIDS = 3


_SPARE = 1024
_Triple = ctypes.c_int64 * 3


class _Geometry(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("batch", "in_channels", "out_channels", "groups")],
        *[(n, _Triple) for n in ("in_size", "out_size", "kernel", "stride", "padding", "dilation", "spacing")],
    ]


def forward(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Compute ``reference.forward``."""
    y = _roomy_activations(geometry.y_shape, _computed_in(x))
    return _run(_Pass.FORWARD, position_major(x), weight, y, geometry)


def forward_on_grids(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Compute the responses of a layer with one filter per lateral grid; ``weight`` starts with the grids' spacing.

    Neurons of a grid are that far apart along each axis. Filters are packed once per grid, not once per neuron.
    """
    y = empty_activations(x, geometry.y_shape, dtype=_computed_in(x))
    spacing = tuple(weight.shape[: len(geometry.stride)])
    return _run(_Pass.FORWARD_ON_GRIDS, position_major(x), weight, y, geometry, spacing)


def input_gradient(grad: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Compute ``reference.input_gradient``."""
    dx = _roomy_activations(geometry.x_shape, _computed_in(grad))
    return _run(_Pass.INPUT_GRADIENT, position_major(grad), weight, dx, geometry)


def weight_gradient(x: Tensor, grad: Tensor, geometry: Geometry) -> Tensor:
    """Compute ``reference.weight_gradient``."""
    dw = x.new_empty(geometry.weight_shape, dtype=_computed_in(x))
    return _run(_Pass.WEIGHT_GRADIENT, position_major(x), position_major(grad), dw, geometry)


def share_(weight: Tensor, grids: Tensor) -> None:
    """Compute ``reference.share_``; half-precision and strided weights are left to ``batched``."""
    if not weight.is_contiguous() or weight.dtype not in (torch.float32, torch.float64):
        batched.share_(weight, grids)
        return
    library = _library()
    assert not isinstance(library, str), library
    order = grids.flatten().argsort(stable=True)
    counts = torch.bincount(grids.flatten())
    starts = torch.cat([counts.new_zeros(1), counts[counts > 0].cumsum(0)])
    torch.autograd.graph.increment_version(weight)  # PyTorch does not notice this change by itself
    library.sleepconv_share(
        weight.data_ptr(),
        weight.dtype == torch.float64,
        weight.numel() // grids.numel(),
        len(starts) - 1,
        order.data_ptr(),
        starts.data_ptr(),
        torch.get_num_threads(),
    )


def unavailable() -> str | None:
    """Return why this kernel cannot be used, or None if it can."""
    library = _library()
    return library if isinstance(library, str) else None


@cache
def instruction_set() -> InstructionSet:
    """Return the instruction set in use: this processor's best, or SLEEPCONV_INSTRUCTION_SET if that is lower."""
    library = _library()
    if isinstance(library, str):
        raise RuntimeError(library)
    best = InstructionSet(library.sleepconv_instruction_set())
    wanted = os.environ.get("SLEEPCONV_INSTRUCTION_SET", best.name).upper()
    if wanted not in InstructionSet.__members__:
        names = ", ".join(member.name.lower() for member in InstructionSet)
        raise ValueError(f"SLEEPCONV_INSTRUCTION_SET must be one of {names}, got {wanted.lower()!r}")
    return min(best, InstructionSet[wanted])


@cache
def _library() -> ctypes.CDLL | str:
    folder = Path(__file__).parent
    names = [folder / f"_native{suffix}" for suffix in EXTENSION_SUFFIXES]
    found = [name for name in names if name.exists()]
    if not found:
        return "its native kernel was not compiled at installation"
    try:
        library = ctypes.CDLL(str(found[0]))
    except OSError as error:
        return f"its native kernel cannot be loaded ({error})"
    pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    library.sleepconv_run.argtypes = [ctypes.POINTER(_Geometry), *[number] * 4, *[pointer] * 3]
    library.sleepconv_share.argtypes = [pointer, number, size, size, pointer, pointer, number]
    return library


def _roomy_activations(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Allocate activations, stored position by position, with a little memory to spare.

    glibc serves an aligned request only from a gap that is slightly larger: the gap that a tensor leaves is lost for
    the next one of the same size. Without the spare memory, the heap grows by a fifth while a ResNet20 is trained.
    """
    memory = torch.empty(prod(shape) + _SPARE, dtype=dtype, device="cpu")
    return memory.new_empty(0).set_(memory.untyped_storage(), 0, shape, _strides(shape))


@cache
def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return empty_activations(torch.empty(0, device="meta"), shape).stride()


def _computed_in(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _run(which: _Pass, first: Tensor, second: Tensor, out: Tensor, geometry: Geometry, spacing: Axes = ()) -> Tensor:
    library = _library()
    assert not isinstance(library, str), library
    dtype = out.dtype
    if geometry.batch == 0 or out.numel() == 0:
        return out.zero_().to(first.dtype)
    one, other = (t if t.dtype == dtype else t.to(dtype) for t in (first.contiguous(), second.contiguous()))
    code = library.sleepconv_run(
        _as_struct(geometry, spacing),
        which,
        dtype == torch.float64,
        instruction_set(),
        torch.get_num_threads(),
        one.data_ptr(),
        other.data_ptr(),
        out.data_ptr(),
    )
    if code:
        reason = "out of memory for its scratch space" if code == 1 else "instruction set not supported here"
        raise RuntimeError(f"the native kernel failed: {reason}")
    return out if first.dtype == dtype else out.to(first.dtype)


@cache
def _as_struct(g: Geometry, spacing: Axes) -> _Geometry:
    def triple(values: tuple[int, ...], fill: int) -> ctypes.Array:
        return _Triple(*(fill,) * (3 - len(values)), *values)

    ones = [triple(v, 1) for v in (g.input_size, g.output_size, g.kernel_size, g.stride)]
    rest = [*ones, triple(g.padding, 0), triple(g.dilation, 1), triple(spacing, 1)]
    return _Geometry(g.batch, g.in_channels, g.out_channels, g.groups, *rest)
