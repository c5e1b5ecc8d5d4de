"""The choice of which responses keep the memory layout of locally connected layers, and modules that keep it.

A locally connected layer computes on (height, width, batch, channels). Where only operations that are known to handle
such tensors and gradients stand between it and the next one, its responses keep this layout; everywhere else they are
contiguous, at the cost of a copy.
"""

from collections.abc import Iterable
from contextlib import ExitStack, suppress
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from sleepconv.nn.dry_run import rehearse, two_of_each
from sleepconv.nn.grid_convolution import GridConvolution
from sleepconv.nn.known_operations import CONVOLUTIONS, KNOWN, guard_gradients
from sleepconv.nn.modules import LocallyConnected, PerPatchLinear

_OURS = (LocallyConnected, PerPatchLinear, GridConvolution)


class LayoutKeepingBatchNorm2d(nn.BatchNorm2d):
    """``nn.BatchNorm2d`` that is also fast on responses stored as (height, width, batch, channels).

    Channel statistics do not care which axis is the batch: read as (height, channels, width, batch), such a tensor is
    an ordinary channels-last batch, for which PyTorch's own code is fast.

    >>> LayoutKeepingBatchNorm2d(3)(torch.randn(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize every channel."""
        if not _lies_position_by_position(input):
            return super().forward(input)
        y = super().forward(input.permute(2, 1, 3, 0))
        return y.permute(3, 1, 0, 2) if torch.compiler.is_compiling() else _Permuted.apply(y)


class LayoutKeepingReLU(nn.ReLU):
    """``nn.ReLU`` whose gradient has the memory layout of its responses, whatever comes back (from pooling, say).

    >>> LayoutKeepingReLU()(torch.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return max(input, 0)."""
        y = super().forward(input)
        if y.requires_grad and not torch.compiler.is_compiling() and _lies_position_by_position(y):
            guard_gradients(y)
            y.register_hook(_position_by_position)
        return y


class _Permuted(torch.autograd.Function):
    """The permutation from (height, channels, width, batch) back to (batch, channels, height, width).

    The result shares memory with its input but is not a view of it: after a view, an operation in place (ReLU, +=)
    would make autograd copy the gradients. This is safe since batch normalization does not need its output again.
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
    """Return whether several images are stored so. (One is channels last, too, which PyTorch's modules keep.)"""
    if torch.jit.is_tracing():
        return False
    return x.dim() == 4 and x.shape[0] > 1 and not x.is_contiguous() and x.permute(2, 3, 0, 1).is_contiguous()


_LAYOUT_KEEPING: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm2d: LayoutKeepingBatchNorm2d,
    nn.ReLU: LayoutKeepingReLU,
}
_FOLLOWED = (nn.BatchNorm1d, nn.BatchNorm3d, *_LAYOUT_KEEPING, *_LAYOUT_KEEPING.values())


def keep_layout(model: nn.Module, sample_input: Tensor | tuple[Any, ...] | dict[str, Any]) -> nn.Module:
    """Keep responses in the memory layout of our layers wherever all that follows can handle it.

    ``to_locally_connected`` and ``to_per_patch`` do this; call it for models that are built by hand. The model runs on
    the sample, once in eval and once in training mode, and every operation between one of our layers and the next is
    checked. Where one is not known to handle the layout (forward and backward), and where the model cannot run in both
    modes, the layers before it return contiguous responses. BatchNorm2d and ReLU modules get a class that keeps the
    layout; their results and ``state_dict`` keys do not change.

    Call it again after changing the model, or if only a part of it is run. Until then, a layer that finds an unknown
    operation between itself and the layers before it makes sure that this operation gets a contiguous gradient.

    Args:
        model: the model to change, in place.
        sample_input: one batch as the model will see it (a tuple: positional arguments; a dict: keyword arguments).

    Returns:
        The model.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> first, second = LocallyConnected2d(3, 8, 3, input_size=8), LocallyConnected2d(8, 8, 3, input_size=6)
    >>> model = keep_layout(nn.Sequential(first, nn.BatchNorm2d(8), nn.ReLU(), second), torch.randn(2, 3, 8, 8))
    >>> first.position_major, second.position_major
    (True, False)
    """
    chains = Chains(model)
    chains.watch(sample_input)
    chains.keep_layout()
    return model


def forget_layout(model: nn.Module) -> nn.Module:
    """Undo ``keep_layout``: make all responses contiguous again, in place, and return the model.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> first, second = LocallyConnected2d(3, 8, 3, input_size=8), LocallyConnected2d(8, 8, 3, input_size=6)
    >>> model = keep_layout(nn.Sequential(first, second), torch.randn(2, 3, 8, 8))
    >>> forget_layout(model)[0].position_major
    False
    """
    _change_classes(model, {keeping: plain for plain, keeping in _LAYOUT_KEEPING.items()})
    for layer in _our_layers(model):
        layer.position_major = False
    return model


def _change_classes(model: nn.Module, classes: dict[type[nn.Module], type[nn.Module]]) -> None:
    for module in model.modules():
        if type(module) in classes:
            module.__class__ = classes[type(module)]


def _our_layers(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, _OURS)]


class Chains(TorchDispatchMode):
    """A watch on a running model: which layers' responses meet each other, and which meet an unknown operation.

    Below autograd, it sees every operation, also those of scripted modules.

    Attributes:
        modes: the modes (whether training) in which the model could run.
        watchable: whether all outputs could be looked into.
        origins: for a tensor the layers from which its layout comes; none if it comes from a convolution. A tensor that
            is missing comes from elsewhere.
        companions: for each layer those whose responses are combined with its own.
        contiguous: the layers whose responses must be contiguous.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.modes: set[bool] = set()
        self.watchable = True
        self.origins = WeakTensorKeyDictionary()
        self.companions: dict[nn.Module, set[nn.Module]] = {}
        self.contiguous: set[nn.Module] = set()
        self.own = {id(tensor) for tensor in [*model.parameters(), *model.buffers()]}
        self.depth = 0
        self.entered: list[set[nn.Module] | None] = []

    def watch(self, sample_input: Any) -> None:
        """Run the model in eval and in training mode, with contiguous responses.

        A batch of one hides how its values lie in memory, so the model runs on two if it can.
        """
        before = {layer: layer.position_major for layer in _our_layers(self.model)}
        try:
            for layer in before:
                layer.position_major = False
            for training in (False, True):
                for sample in (two_of_each(sample_input), sample_input):
                    with suppress(Exception):
                        self._run(sample, training)
                        self.modes.add(training)
                        break
        finally:
            for layer, position_major in before.items():
                layer.position_major = position_major

    def keep_layout(self) -> None:
        """Set ``position_major`` in the layers that, with their companions, meet only known operations."""
        _change_classes(self.model, _LAYOUT_KEEPING)
        both = self.watchable and self.modes == {False, True}
        for layer in _our_layers(self.model):
            together = self.companions.get(layer)
            layer.position_major = both and together is not None and not together & self.contiguous

    def _run(self, sample: Any, training: bool) -> None:
        self.depth, self.entered = 0, []
        with ExitStack() as stack:
            for module in self.model.modules():
                if _computes_as_ours(module) or type(module) in _FOLLOWED:
                    stack.callback(module.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
                    stack.callback(module.register_forward_hook(self._leave, prepend=True, always_call=True).remove)
            with self:
                output = rehearse(self.model, sample, training=training, differentiable=True)
        leaves = tree_leaves(output)
        self._end(leaf for leaf in leaves if isinstance(leaf, Tensor))
        self.watchable &= all(isinstance(leaf, (Tensor, NoneType, str, int, float)) for leaf in leaves)

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
        # Inside an autograd.Function grad mode is off: its backward pass is the model's own, and unknown.
        if operation in KNOWN and torch.is_grad_enabled() and all(map(self._harmless, strangers)):
            self._unite(layers)
            self._mark((t for t in results if not _pooled(operands, t)), layers)
        else:
            self.contiguous |= layers

    def _harmless(self, tensor: Tensor) -> bool:
        """Return whether the memory layout of its gradient does not matter where this tensor comes from."""
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
        """Note where the input comes from: user hooks may give the module an alias of it."""
        self.depth += 1
        self.entered.append(self.origins.get(next(iter((*inputs, *keywords.values())))))

    def _leave(self, module: nn.Module, inputs: Any, output: Tensor | None) -> None:
        """Note where the output comes from; it is None if the module failed."""
        self.depth -= 1
        origins = self.entered.pop()
        if output is None:
            return
        if _computes_as_ours(module):
            self.companions.setdefault(module, {module})
            origins = {module}
        if origins is not None:
            self._mark([output], origins)


def _computes_as_ours(module: nn.Module) -> bool:
    """Return whether it is one of our layers and does not override ``forward``."""
    forward = getattr(module.forward, "__func__", None)
    return isinstance(module, _OURS) and forward in [ours.forward for ours in _OURS]


def _without_space(tensor: Tensor) -> bool:
    return all(size == 1 for size in tensor.shape[2:])


def _pooled(operands: list[Tensor], result: Tensor) -> bool:
    """Return whether no spatial extent is left: (batch, channels) is contiguous in either layout."""
    before = operands[0].shape
    return result.shape != before and result.shape[:2] == before[:2] and _without_space(result)
