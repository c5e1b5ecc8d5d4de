"""Equals of PyTorch's modules that keep the memory layout of locally connected layers.

Responses of locally connected layers lie in memory as (height, width, batch, channels). Most of PyTorch's operations
keep that; these modules take care where it would be lost, at the cost of a copy in every further layer.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only


class LayoutKeepingBatchNorm2d(nn.BatchNorm2d):
    """``nn.BatchNorm2d``, also fast on responses that lie in memory as (height, width, batch, channels).

    Channel statistics do not care which axis is the batch: read as (height, channels, width, batch), such a tensor is
    an ordinary channels-last batch, for which PyTorch's own code is fast.

    >>> LayoutKeepingBatchNorm2d(3)(torch.randn(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise every channel."""
        if not _lies_position_by_position(input):
            return super().forward(input)
        y = super().forward(input.permute(2, 1, 3, 0))
        return y.permute(3, 1, 0, 2) if torch.compiler.is_compiling() else _Permuted.apply(y)


class LayoutKeepingReLU(nn.ReLU):
    """``nn.ReLU`` whose gradient lies in memory as its responses do, whatever comes back (from pooling, say).

    >>> LayoutKeepingReLU()(torch.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """max(input, 0)."""
        y = super().forward(input)
        if y.requires_grad and not torch.compiler.is_compiling() and _lies_position_by_position(y):
            y.register_hook(_position_by_position)
        return y


class _Permuted(torch.autograd.Function):
    """From (height, channels, width, batch) back to (batch, channels, height, width).

    The result shares memory with its input but is no view of it: after a view, an operation in place (ReLU, +=) would
    make autograd copy the gradients. It is safe since batch normalisation does not need its output again.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.permute(3, 1, 0, 2)
        return x.new_empty(0).set_(x.untyped_storage(), x.storage_offset(), y.shape, y.stride())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.permute(2, 1, 3, 0)


def _position_by_position(grad: Tensor) -> Tensor:
    return grad.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)


def _lies_position_by_position(x: Tensor) -> bool:
    """One image that lies so lies channels last, too, which PyTorch's own modules keep."""
    return x.dim() == 4 and x.shape[0] > 1 and not x.is_contiguous() and x.permute(2, 3, 0, 1).is_contiguous()


def contiguous_outputs(module: nn.Module, inputs: Any, output: Any) -> Any:
    """A forward hook for a whole model: what leaves it lies in memory as users expect it (to ``.view`` it, say)."""
    return tree_map_only(Tensor, _contiguous, output)


def _contiguous(tensor: Tensor) -> Tensor:
    channels_last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim(), torch.contiguous_format)
    # A batch of one that lies position by position cannot be told from one that lies channels last.
    usual = tensor.is_contiguous() or (tensor.shape[0] > 1 and tensor.is_contiguous(memory_format=channels_last))
    return tensor if usual else tensor.contiguous()


EQUALS: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm2d: LayoutKeepingBatchNorm2d,
    nn.ReLU: LayoutKeepingReLU,
}


def keep_layout(model: nn.Module) -> None:
    """Give the modules that would lose the layout the class of their layout-keeping equal."""
    _exchange(model, EQUALS)


def forget_layout(model: nn.Module) -> None:
    """Undo ``keep_layout``."""
    _exchange(model, {equal: plain for plain, equal in EQUALS.items()})


def _exchange(model: nn.Module, classes: dict[type[nn.Module], type[nn.Module]]) -> None:
    for module in model.modules():
        if type(module) in classes:
            module.__class__ = classes[type(module)]
