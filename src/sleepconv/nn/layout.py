"""Which responses stay in the memory layout of locally connected layers, and modules that keep it.

A locally connected layer computes on (height, width, batch, channels). Where the next one follows through operations
that are known to handle such tensors and such gradients, its responses stay like that; everywhere else they are
contiguous, at the cost of a copy.
"""

from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from sleepconv.nn.dry_run import rehearse, two_of_each
from sleepconv.nn.locally_connected import LocallyConnected
from sleepconv.nn.per_patch import PerPatchLinear

OURS = (LocallyConnected, PerPatchLinear)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

# These are right for tensors, and for gradients, in any mixture of our layout and the usual one;
# tests/nn/test_neighbours.py tries them all.
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
# These take anything, and give each input a gradient that lies as the input does.
CONVOLUTIONS = {_aten.convolution, torch.ops.sleepconv.locally_connected}


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


class _ContiguousGradient(nn.Module):
    """Give the backward pass of an InstanceNorm a contiguous gradient: PyTorch's misreads any other without a word."""

    def forward(self, input: Tensor) -> Tensor:
        y = super().forward(input)
        if y.requires_grad and not torch.compiler.is_compiling():
            y.register_hook(Tensor.contiguous)
        return y


class _InstanceNorm1d(_ContiguousGradient, nn.InstanceNorm1d):
    pass


class _InstanceNorm2d(_ContiguousGradient, nn.InstanceNorm2d):
    pass


class _InstanceNorm3d(_ContiguousGradient, nn.InstanceNorm3d):
    pass


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


EQUALS: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm2d: LayoutKeepingBatchNorm2d,
    nn.ReLU: LayoutKeepingReLU,
}


# Also where the dry run does not come, gradients may reach these in our layout.
GUARDED: dict[type[nn.Module], type[nn.Module]] = {
    nn.InstanceNorm1d: _InstanceNorm1d,
    nn.InstanceNorm2d: _InstanceNorm2d,
    nn.InstanceNorm3d: _InstanceNorm3d,
}


def keep_layout(model: nn.Module, sample_input: Tensor | tuple[Any, ...] | dict[str, Any]) -> nn.Module:
    """Let responses stay in the memory layout of our layers wherever all that follows can handle it.

    ``to_locally_connected`` and ``to_per_patch`` do this by themselves; call it for models that are built by hand. The
    model runs on the sample, in eval and in training mode, and every operation on the way from one of our layers to
    the next is looked at. Where one is not known to handle the layout (in both directions, forward and backward), and
    where the model cannot run in both modes, the layers before it return contiguous responses. BatchNorm2d and ReLU
    modules get a class that keeps the layout; their results and ``state_dict`` keys do not change.

    Args:
        model: what to change, in place.
        sample_input: one batch as the model will see it (a tuple: positional arguments; a dict: keyword arguments).

    Returns:
        the model.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> first, second = LocallyConnected2d(3, 8, 3, input_size=8), LocallyConnected2d(8, 8, 3, input_size=6)
    >>> model = keep_layout(nn.Sequential(first, nn.BatchNorm2d(8), nn.ReLU(), second), torch.randn(2, 3, 8, 8))
    >>> first.position_major, second.position_major
    (True, False)
    """
    _exchange(model, EQUALS | GUARDED)
    layers = [module for module in model.modules() if isinstance(module, OURS)]
    for layer in layers:
        layer.position_major = False
    chains = _Chains(model)
    for training in (False, True):
        samples = (two_of_each(sample_input), sample_input)
        if not any(chains.watch(model, sample, training=training) for sample in samples):
            return model
    for kept in chains.kept():
        kept.position_major = True
    return model


def forget_layout(model: nn.Module) -> None:
    """Undo ``keep_layout``."""
    _exchange(model, {equal: plain for plain, equal in (EQUALS | GUARDED).items()})
    for module in model.modules():
        if isinstance(module, OURS):
            module.position_major = False


def _exchange(model: nn.Module, classes: dict[type[nn.Module], type[nn.Module]]) -> None:
    for module in model.modules():
        if type(module) in classes:
            module.__class__ = classes[type(module)]


class _Chains(TorchDispatchMode):
    """Watches a model run: which layers' responses meet each other, and which meet an operation that is not known.

    Below autograd, it sees every operation, also of scripted modules. ``origins`` says for a tensor from which layers
    its layout comes; none for what comes from a convolution. A tensor that is not in it comes from elsewhere.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.origins = WeakTensorKeyDictionary()
        self.companions: dict[nn.Module, set[nn.Module]] = {}
        self.contiguous: set[nn.Module] = set()
        self.own = {id(tensor) for tensor in [*model.parameters(), *model.buffers()]}
        self.depth = 0
        self.entered: list[set[nn.Module] | None] = []

    def watch(self, model: nn.Module, sample_input: Any, *, training: bool) -> bool:
        """Run the model; say whether it could."""
        self.depth, self.entered = 0, []
        with ExitStack() as stack, suppress(Exception):
            for module in model.modules():
                if isinstance(module, OURS) or type(module) in (*NORMS, *EQUALS.values()):
                    stack.callback(module.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
                    stack.callback(module.register_forward_hook(self._leave, prepend=True, always_call=True).remove)
            with self:
                output = rehearse(model, sample_input, training=training, differentiable=True)
            self._end(tensor for tensor in tree_leaves(output) if isinstance(tensor, Tensor))
            return True
        return False

    def kept(self) -> set[Any]:
        """The layers that meet, together with all that their responses are mixed with, only what is known."""
        return {layer for layer, together in self.companions.items() if not together & self.contiguous}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.depth:
            operands = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
            results = [value for value in tree_leaves(result) if isinstance(value, Tensor)]
            self._follow(func.overloadpacket, operands, results)
        return result

    def _follow(self, operation: Any, operands: list[Tensor], results: list[Tensor]) -> None:
        if operation in CONVOLUTIONS:
            self._end(operands[1:])
            self._mark(results, set())
            return
        given = [self.origins.get(tensor) for tensor in operands]
        layers = set().union(*[origins for origins in given if origins is not None])
        if all(origins is None for origins in given):
            return
        strangers = [t for t, origins in zip(operands, given, strict=True) if origins is None]
        # Inside of an autograd.Function there is no grad mode: its backward pass is the model's own, and not known.
        if operation in KNOWN and torch.is_grad_enabled() and all(map(self._harmless, strangers)):
            self._unite(layers)
            self._mark((t for t in results if not _pooled(operands, t)), layers)
        else:
            self.contiguous |= layers

    def _harmless(self, tensor: Tensor) -> bool:
        """Whether it does not matter to its own origin in which order its gradient lies in memory."""
        return id(tensor) in self.own or tensor.numel() == 1 or (tensor.dim() > 2 and _without_space(tensor))

    def _mark(self, tensors: Iterable[Tensor], layers: set[nn.Module]) -> None:
        for tensor in tensors:
            self.origins[tensor] = layers

    def _end(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self.contiguous |= self.origins.get(tensor, set())

    def _unite(self, layers: set[nn.Module]) -> None:
        together = layers.union(*[self.companions[layer] for layer in layers])
        for layer in together:
            self.companions[layer] = together

    def _enter(self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Note where the input comes from: hooks of the user's may give the module an alias of it."""
        self.depth += 1
        self.entered.append(self.origins.get(next(iter((*inputs, *keywords.values())))))

    def _leave(self, module: nn.Module, inputs: Any, output: Tensor | None) -> None:
        """Pass on where the output comes from; there is none where the module failed."""
        self.depth -= 1
        origins = self.entered.pop()
        if output is None:
            return
        if isinstance(module, OURS):
            self.companions.setdefault(module, {module})
            origins = {module}
        if origins is not None:
            self._mark([output], origins)


def _without_space(tensor: Tensor) -> bool:
    return all(size == 1 for size in tensor.shape[2:])


def _pooled(operands: list[Tensor], result: Tensor) -> bool:
    """Whether nothing of space is left: (batch, channels) is contiguous in either layout."""
    before = operands[0].shape
    return result.shape != before and result.shape[:2] == before[:2] and _without_space(result)
