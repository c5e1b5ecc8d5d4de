"""The layer in PyTorch's own operations, for what has no rule for ours: ``torch.func``, forward mode, tracing."""

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import pad


def needs_plain_operations() -> bool:
    """Whether our operators would be refused, or differentiated to zero, where this is called."""
    if torch.compiler.is_compiling():
        return False
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    return transformed or forward_ad._current_level >= 0 or torch.jit.is_tracing()


def locally_connected(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Compute what ``operators.locally_connected`` does, as one batched matrix product per filter tap."""
    axes = len(stride)
    out, filters, kernel = weight.shape[:axes], weight.shape[axes : axes + 2], weight.shape[-axes:]
    reach = [(n - 1) * s + 1 for n, s in zip(out, stride, strict=True)]
    ends = [r + d * (k - 1) for r, d, k in zip(reach, dilation, kernel, strict=True)]
    sides = [(p, max(end - p - n, 0)) for p, end, n in zip(padding, ends, x.shape[2:], strict=True)]
    padded = pad(x, [amount for side in reversed(sides) for amount in side])
    weights = weight.reshape(out.numel(), groups, filters[0] // groups, filters[1], kernel.numel())
    y = None
    for tap, taken in zip(product(*map(range, kernel)), weights.unbind(-1), strict=True):
        places = [slice(u * d, u * d + r, s) for u, d, r, s in zip(tap, dilation, reach, stride, strict=True)]
        seen = padded[:, :, *places].reshape(x.shape[0], groups, filters[1], out.numel()).permute(3, 1, 0, 2)
        products = seen @ taken.mT
        y = products if y is None else y + products
    assert y is not None  # a kernel has at least one tap
    return y.permute(2, 1, 3, 0).reshape(x.shape[0], filters[0], *out).contiguous()
