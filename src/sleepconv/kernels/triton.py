"""Kernels for NVIDIA and AMD GPUs, written in Triton; ``programs`` has what runs there.

Triton is optional (``pip install 'sleepconv[gpu]'``; PyTorch for CUDA brings it along), and is imported at the first
use. With ``TRITON_INTERPRET=1`` in the environment, its interpreter runs the same programs, slowly, on CPU tensors.
"""

import os
from functools import cache
from importlib.util import find_spec
from math import prod
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, library

from sleepconv.kernels import batched
from sleepconv.kernels.geometry import Axes, Geometry, empty_activations, position_major
from sleepconv.kernels.lattice import repeated_corner

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_NEURONS = 16


def forward(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Compute ``reference.forward``; what ``_computes`` refuses is left to ``batched``."""
    if not _computes(x.dtype):
        return batched.forward(x, weight, geometry)
    y, filters = empty_activations(x, geometry.y_shape), _flat(weight, geometry)
    outs = geometry.out_channels // geometry.groups
    _run("forward", (position_major(x), filters, y), filters, geometry, outs, geometry.output_size)
    return y


def input_gradient(grad: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Compute ``reference.input_gradient``; what ``_computes`` refuses is left to ``batched``."""
    if not _computes(grad.dtype):
        return batched.input_gradient(grad, weight, geometry)
    dx, filters = empty_activations(grad, geometry.x_shape), _flat(weight, geometry)
    ins = geometry.in_channels // geometry.groups
    _run("input_gradient", (position_major(grad), filters, dx), filters, geometry, ins, geometry.input_size)
    return dx


def weight_gradient(x: Tensor, grad: Tensor, geometry: Geometry) -> Tensor:
    """Compute ``reference.weight_gradient``; what ``_computes`` refuses is left to ``batched``."""
    if not _computes(x.dtype):
        return batched.weight_gradient(x, grad, geometry)
    dw, outs = x.new_empty(geometry.weight_shape), geometry.out_channels // geometry.groups
    operands = (position_major(x), position_major(grad), dw)
    _run("weight_gradient", operands, _flat(dw, geometry), geometry, outs, geometry.output_size)
    return dw


def share_(weight: Tensor, grids: Tensor) -> None:
    """Compute ``reference.share_``; what is not a lattice, strided or float64 is left to ``batched``."""
    corner = repeated_corner(grids)
    filters = weight.numel() // grids.numel()
    if corner is None or weight.dtype not in _DTYPES or not weight.is_contiguous():
        batched.share_(weight, grids)
        return
    sizes = _named("A", tuple(grids.shape), 1) | _named("G", tuple(corner.shape), 1)
    torch.autograd.graph.increment_version(weight)  # PyTorch does not notice this change by itself
    block = 4096 if interpreted() else 256
    places = -(-filters // block) * corner.numel()
    with torch.cuda.device_of(weight):
        _programs().share[(places,)](weight, filters, **sizes, NEURONS=_NEURONS, BLOCK=block)


@cache
def unavailable() -> str | None:
    """Return why this kernel cannot be used, or None if it can."""
    return None if find_spec("triton") else "Triton is not installed (pip install 'sleepconv[gpu]')"


def interpreted() -> bool:
    """Return whether Triton's interpreter runs the programs on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "y", "yes")


def _computes(dtype: torch.dtype) -> bool:
    """Return whether the programs can multiply these numbers: not float64; the interpreter gets bfloat16 wrong."""
    return dtype in _DTYPES and not (dtype == torch.bfloat16 and interpreted())


@cache
def _programs() -> ModuleType:
    from sleepconv.kernels import programs

    return programs


def _run(name: str, operands: tuple[Tensor, ...], filters: Tensor, g: Geometry, columns: int, places: Axes) -> None:
    """Launch a program for every place, group, and block of rows and columns of its product."""
    if g.batch == 0 or not operands[-1].numel():
        operands[-1].zero_()
        return
    constants = arguments(g, columns, operands[0].dtype)
    rows = g.batch if name != "weight_gradient" else len(g.taps) * constants["INS"]
    repeats = prod(places) * g.groups * -(-columns // constants["BLOCK_N"])
    batch_class = 1 << (int(g.batch) - 1).bit_length()  # so that the last batch of an epoch is not tuned for anew
    program = getattr(_programs(), name)
    if type(operands[0]) is not Tensor and hasattr(library, "wrap_triton"):
        program = library.wrap_triton(program)  # torch.compile traces this
    with torch.cuda.device_of(operands[0]):
        program[lambda meta: (repeats * -(-rows // meta["BLOCK_M"]),)](
            *operands, g.batch, batch_class, *filters.stride(), **constants
        )


def arguments(g: Geometry, columns: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the constants that a program is compiled for, but for the tuned ones."""
    sizes: dict[str, Any] = {"GROUPS": g.groups, "INS": g.in_channels // g.groups, "OUTS": g.out_channels // g.groups}
    for letter, values in (("N", g.input_size), ("O", g.output_size), ("K", g.kernel_size), ("S", g.stride)):
        sizes |= _named(letter, values, 1)
    sizes |= _named("P", g.padding, 0) | _named("D", g.dilation, 1)
    block = max(16, min(64, 1 << (columns - 1).bit_length()))  # a matrix instruction has at least 16 columns
    return sizes | {"PRECISION": _precision(dtype), "BLOCK_N": block}


def _precision(dtype: torch.dtype) -> str:
    """Return how float32 is multiplied: as convolutions are, in TF32 unless that is switched off."""
    if dtype != torch.float32 or torch.version.hip:
        return "ieee"
    convolutions = getattr(torch.backends.cudnn, "conv", None)
    allowed = torch.backends.cudnn.allow_tf32 if convolutions is None else convolutions.fp32_precision == "tf32"
    return "tf32" if allowed else "ieee"


def _named(letter: str, values: Axes, fill: int) -> dict[str, int]:
    return {f"{letter}{axis}": v for axis, v in enumerate((*(fill,) * (3 - len(values)), *values))}


def _flat(weight: Tensor, g: Geometry) -> Tensor:
    """Return the weight as (positions, out_channels, in_channels / groups, taps), a view if its strides allow it."""
    axes = len(g.stride)
    return weight.flatten(-axes).flatten(0, axes - 1)
