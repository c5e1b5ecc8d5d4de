"""Operations that handle tensors and gradients in the memory layout of locally connected layers.

They are correct for any mixture of our layout and the usual one, forward and backward; tests/nn/test_neighbours.py
checks them all. Others may not be: PyTorch's instance normalization misreads gradients with this layout.
"""

from functools import cache

import torch
from torch import Tensor

_aten = torch.ops.aten
KNOWN = {
    *(_aten.relu, _aten.relu_, _aten.leaky_relu, _aten.leaky_relu_, _aten.hardtanh, _aten.hardtanh_),
    *(_aten.gelu, _aten.silu, _aten.silu_, _aten.elu, _aten.elu_, _aten.mish, _aten.mish_),
    *(_aten.hardswish, _aten.hardswish_, _aten.hardsigmoid, _aten.hardsigmoid_, _aten.softplus),
    *(_aten.sigmoid, _aten.sigmoid_, _aten.tanh, _aten.tanh_),
    *(_aten.add, _aten.add_, _aten.sub, _aten.sub_, _aten.mul, _aten.mul_, _aten.div, _aten.div_, _aten.neg),
    *(_aten.empty_like, _aten.bernoulli_, _aten.native_dropout, _aten.detach, _aten._to_copy),
    *(_aten.avg_pool2d, _aten.max_pool2d_with_indices, _aten._adaptive_avg_pool2d, _aten.mean),
}
# These take anything, and give each input a gradient with the layout of the input.
CONVOLUTIONS = {_aten.convolution, torch.ops.sleepconv.locally_connected}

# The same in an autograd graph: names of its nodes without "Backward0" and underscores, in lower case.
_KNOWN_NODES = {operation.__name__.replace("_", "") for operation in KNOWN} | {"nativebatchnorm", "permute", "permuted"}
_ENDS = {"convolution", "generatedbackwardforsleepconvlocallyconnecteddefault", "torch::autograd::accumulategrad"}
# Of sleepconv.functional's operators and feedback.
_ENDS |= {"eagerlocallyconnected", "withfeedback", "withdirectfeedback"}


def guard_gradients(x: Tensor) -> None:
    """Make gradients that come back through ``x`` contiguous before they reach an unknown operation.

    Looks at all operations between ``x`` and the layers and convolutions that it comes from. There is nothing to guard
    unless the model was changed after ``keep_layout``, runs differently, or runs only in part.
    """
    nodes, seen = [x.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = _plain_name(node.name())
        if name in _ENDS:
            continue
        if name not in _KNOWN_NODES:
            node.register_prehook(_contiguous)
        nodes += [following for following, _ in node.next_functions]


@cache
def _plain_name(name: str) -> str:
    return name.lower().replace("_", "").rstrip("0123456789").removesuffix("backward")


def _contiguous(gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    return tuple(None if gradient is None else gradient.contiguous() for gradient in gradients)
