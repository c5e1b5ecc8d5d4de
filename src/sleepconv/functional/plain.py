"""The layer in plain PyTorch operations, for ``torch.func``, forward-mode derivatives, tracing and export."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from sleepconv.functional import operators
from sleepconv.kernels import Geometry


def locally_connected(x: Tensor, weight: Tensor, g: Geometry) -> Tensor:
    """Compute what ``operators.locally_connected`` does, as one batched matrix product per filter tap."""
    outs, ins, positions = g.out_channels // g.groups, g.in_channels // g.groups, g.positions
    reach = [(n - 1) * s + 1 for n, s in zip(g.output_size, g.stride, strict=True)]
    ends = [r + d * (k - 1) for r, d, k in zip(reach, g.dilation, g.kernel_size, strict=True)]
    sides = [(p, max(end - p - n, 0)) for p, end, n in zip(g.padding, ends, g.input_size, strict=True)]
    padded = pad(x, [amount for side in reversed(sides) for amount in side])
    weights = weight.reshape(positions, g.groups, outs, ins, -1)
    y = None
    for tap, taken in zip(g.taps, weights.unbind(-1), strict=True):
        places = [slice(u * d, u * d + r, s) for u, d, r, s in zip(tap, g.dilation, reach, g.stride, strict=True)]
        seen = padded[:, :, *places].reshape(g.batch, g.groups, ins, positions).permute(3, 1, 0, 2)
        products = seen @ taken.transpose(-2, -1)
        y = products if y is None else y + products
    assert y is not None  # a kernel has at least one tap
    return y.permute(2, 1, 3, 0).reshape(g.y_shape).contiguous()


def decompositions() -> dict[Any, Callable[..., Tensor]]:
    """Return our operator as plain PyTorch operations, for ``ExportedProgram.run_decompositions``.

    A program that was exported so runs where sleepconv is not installed, at the speed of batched matrix products.
    ``torch.onnx.export`` and ``torch.jit.trace`` get plain operations by themselves.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> program = torch.export.export(LocallyConnected1d(2, 3, 3, input_size=8), (torch.randn(1, 2, 8),))
    >>> "sleepconv" in program.graph_module.code
    True
    >>> "sleepconv" in program.run_decompositions(decompositions()).graph_module.code
    False
    """
    return {torch.ops.sleepconv.locally_connected.default: _decomposed}


def _decomposed(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    position_major: bool,
) -> Tensor:
    """Compute ``operators.locally_connected``; the result is contiguous, which all that follows can handle."""
    return locally_connected(
        x, weight, operators.checked_geometry(stride, padding, dilation, groups, x=x, weight=weight)
    )
