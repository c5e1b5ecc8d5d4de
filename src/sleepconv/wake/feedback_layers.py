"""Layers with feedback: the usual ones, whose input gradient is the business of a submodule, ``feedback``.

A layer becomes one of these by a change of its class, so that its weights, hooks and name stay. What it computes stays
too; only its backward pass differs. The feedback weights are in ``layer.feedback.weight``, and so in ``state_dict()``.
Those of a locally connected layer have its grids: sleep finds and shares them as it does any layer's.
"""

from math import acos, degrees
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sleepconv.functional.feedback import (
    Convolution,
    Linear,
    LocallyConnectedProduct,
    Product,
    with_direct_feedback,
    with_feedback,
)
from sleepconv.functional.grids import lateral_grids
from sleepconv.functional.locally_connected import autocast, broadcast_bias
from sleepconv.functional.per_patch import check_tokens
from sleepconv.functional.sizes import Padding, padding_sides
from sleepconv.nn.modules import (
    LocallyConnected,
    LocallyConnected1d,
    LocallyConnected2d,
    LocallyConnected3d,
    PerPatchLinear,
)
from sleepconv.sleep.distributed import full_tensor
from sleepconv.sleep.layers import unwrapped

_GEOMETRY = ("in_channels", "output_size", "kernel_size", "stride", "dilation", "groups", "input_size", "padding")


class Feedback(nn.Module):
    """The backward pass of one layer; ``forward`` computes the layer's product with this backward pass."""

    weight: nn.Parameter

    def forward(self, product: Product, x: Tensor, weight: Tensor) -> Tensor:
        """Return the responses."""
        return with_feedback(product, x, weight, autocast(self.weights_for(weight)))

    def weights_for(self, weight: Tensor) -> Tensor:
        """Return the feedback weights, shaped like the layer's weights."""
        return self.weight

    def for_shared(self, shared: nn.Module) -> "Feedback":
        """Return the feedback of the convolution or linear layer that this layer becomes, from the mean weights."""
        axes = self.weight.dim() - shared.weight.dim()  # type: ignore[operator]
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        for name in ("grids", "interior", *_GEOMETRY):
            made.__dict__.pop(name, None)
        mean = self.weight.detach().mean(tuple(range(axes)))
        made._parameters = {"weight": nn.Parameter(mean, self.weight.requires_grad)}
        return made


class StoredFeedback(Feedback):
    """Feedback weights of its own; if they require a gradient, they get that of the forward weights."""

    def __init__(self, layer: nn.Module, weight: Tensor, *, learned: bool, share_in_sleep: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, learned)
        if share_in_sleep and hasattr(layer, "grids"):
            self.grids = layer.grids
            if isinstance(layer, LocallyConnected):
                for name in _GEOMETRY:
                    setattr(self, name, getattr(layer, name))
                self.interior = layer.interior


class MirrorFeedback(StoredFeedback):
    """Feedback weights that a mirror phase changes: see ``sleepconv.wake.mirror_``."""

    def __init__(self, layer: nn.Module, weight: Tensor, *, patterns: int, decay: float, **options: bool) -> None:
        super().__init__(layer, weight, **options)
        self.patterns, self.decay = patterns, decay


class SignFeedback(Feedback):
    """The signs of the forward weights, with the mean size of these, or with random sizes in each pass."""

    def __init__(self, magnitudes: Literal["uniform", "batchwise"]) -> None:
        super().__init__()
        self.magnitudes = magnitudes

    @torch.no_grad()
    def weights_for(self, weight: Tensor) -> Tensor:
        """Return sign(W) · mean |W|, times random numbers from 0 to 2 if magnitudes are batch-wise."""
        feedback = weight.sign() * weight.abs().mean()
        return feedback if self.magnitudes == "uniform" else feedback.mul_(torch.rand_like(weight).mul_(2))

    def for_shared(self, shared: nn.Module) -> "Feedback":
        """Return the same: it has no weights."""
        return self


class Taps:
    """What carries the error of a model's output to its layers: zeros that they return, added to the output.

    Two hooks of the model: one before it runs, one after.
    """

    def __init__(self) -> None:
        self.taps: list[Tensor] | None = None

    def open(self, model: nn.Module, inputs: Any) -> None:
        """Begin a pass through the model."""
        self.taps = []

    def close(self, model: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        """Add the zeros to the output."""
        taps, self.taps = self.taps or [], None
        for tap in taps:
            output = output + tap.to(output.dtype).view_as(output)
        return output


class DirectFeedback(Feedback):
    """A fixed projection of the error of the model's output: (*places, channels or features, outputs)."""

    def __init__(self, layer: nn.Module, weight: Tensor, taps: Taps, *, share_in_sleep: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.taps = taps
        if share_in_sleep and isinstance(layer, LocallyConnected):
            self.grids = lateral_grids(layer.input_size, layer.kernel_size)
        elif share_in_sleep and isinstance(layer, PerPatchLinear):
            self.grids = layer.grids

    def forward(self, product: Product, x: Tensor, weight: Tensor) -> Tensor:
        """Return the responses, and leave a tap for the error."""
        if self.taps.taps is None:
            raise RuntimeError(
                "a layer that learns by direct feedback alignment needs the error of the whole model: run the model "
                "that was converted, not a part of it (or use torch.no_grad())"
            )
        y, tap = with_direct_feedback(product, x, weight, autocast(self.weight), self.weight.shape[-1])
        self.taps.taps.append(tap)
        return y

    def for_shared(self, shared: nn.Module) -> "Feedback":
        """Return the same projection: it belongs to places, not to filters."""
        return self


class FeedbackLayer(nn.Module):
    """Base class of the layers with feedback."""

    feedback: Feedback

    def _with_feedback(self: Any, product: Product, x: Tensor) -> Tensor:
        """Return the responses without the bias."""
        return self.feedback(product, autocast(x), autocast(self.weight))

    def _keeping_feedback(self, shared: nn.Module) -> nn.Module:
        """Give the shared layer that this one becomes its feedback."""
        shared.__class__ = COUNTERPARTS[type(shared)]
        shared.feedback = self.feedback.for_shared(shared)
        return shared


def _plain_pass() -> bool:
    """Return whether there is no backward pass."""
    return not torch.is_grad_enabled() or torch.jit.is_tracing()


class _FeedbackConvolution(FeedbackLayer):
    def _conv_forward(self: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if _plain_pass():
            return super()._conv_forward(input, weight, bias)  # type: ignore[misc]
        axes, x, padding = len(self.kernel_size), input, self.padding
        if isinstance(padding, str) or self.padding_mode != "zeros":
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            x, padding = F.pad(x, self._reversed_padding_repeated_twice, mode=mode), (0,) * axes
        product = Convolution(self.stride, padding, self.dilation, self.groups)
        batched = x if x.dim() == axes + 2 else x.unsqueeze(0)
        y = self._with_feedback(product, batched)
        y = y if bias is None else y + autocast(bias).view(-1, *(1,) * axes)
        return y if batched is x else y.squeeze(0)


class _FeedbackLocallyConnected(FeedbackLayer):
    def _respond(self: Any, x: Tensor, padding: Padding) -> Tensor:
        if _plain_pass():
            return super()._respond(x, padding)  # type: ignore[misc]
        sides = padding_sides(padding, self.kernel_size, self.stride, self.dilation)
        flat = tuple(amount for side in sides for amount in side)
        product = LocallyConnectedProduct(self.stride, flat, self.dilation, self.groups, self.position_major)
        batched = x if x.dim() == self.axes + 2 else x.unsqueeze(0)
        y = self._with_feedback(product, batched)
        y = y if self.bias is None else y + broadcast_bias(self.axes, autocast(self.bias), self.weight)
        return y if batched is x else y.squeeze(0)

    def _to_convolution(self) -> Any:
        return self._keeping_feedback(super()._to_convolution())  # type: ignore[misc]


class FeedbackConv1d(_FeedbackConvolution, nn.Conv1d):
    """``nn.Conv1d`` with feedback weights."""


class FeedbackConv2d(_FeedbackConvolution, nn.Conv2d):
    """``nn.Conv2d`` with feedback weights."""


class FeedbackConv3d(_FeedbackConvolution, nn.Conv3d):
    """``nn.Conv3d`` with feedback weights."""


class FeedbackLocallyConnected1d(_FeedbackLocallyConnected, LocallyConnected1d):
    """``LocallyConnected1d`` with feedback weights."""


class FeedbackLocallyConnected2d(_FeedbackLocallyConnected, LocallyConnected2d):
    """``LocallyConnected2d`` with feedback weights."""


class FeedbackLocallyConnected3d(_FeedbackLocallyConnected, LocallyConnected3d):
    """``LocallyConnected3d`` with feedback weights."""


class FeedbackLinear(FeedbackLayer, nn.Linear):
    """``nn.Linear`` with feedback weights."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the responses."""
        if _plain_pass():
            return super().forward(input)
        y = self._with_feedback(Linear(), input if input.dim() > 1 else input.unsqueeze(0))
        y = y if self.bias is None else y + autocast(self.bias)
        return y if input.dim() > 1 else y.squeeze(0)


class FeedbackPerPatchLinear(FeedbackLayer, PerPatchLinear):
    """``PerPatchLinear`` with feedback weights."""

    def _respond(self, z: Tensor) -> Tensor:
        if _plain_pass():
            return super()._respond(z)
        check_tokens(z, self.weight, self.bias)
        y = self._with_feedback(Linear(), z if z.dim() > 2 else z.unsqueeze(0))
        y = y if self.bias is None else y + autocast(self.bias)
        y = y if z.dim() > 2 else y.squeeze(0)
        return y if self.position_major else y.contiguous()

    def to_linear(self) -> nn.Linear:
        """Return the shared layer with the mean matrix, and with the mean feedback."""
        return self._keeping_feedback(super().to_linear())  # type: ignore[return-value]


COUNTERPARTS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: FeedbackConv1d,
    nn.Conv2d: FeedbackConv2d,
    nn.Conv3d: FeedbackConv3d,
    LocallyConnected1d: FeedbackLocallyConnected1d,
    LocallyConnected2d: FeedbackLocallyConnected2d,
    LocallyConnected3d: FeedbackLocallyConnected3d,
    nn.Linear: FeedbackLinear,
    PerPatchLinear: FeedbackPerPatchLinear,
}
"""The class that a layer gets with its feedback weights."""


@torch.no_grad()
def alignment(model: nn.Module) -> dict[str, float]:
    r"""Return the angle between forward and feedback weights of each layer, in degrees.

    .. math:: \theta = \arccos \frac{\langle W, B \rangle}{\|W\|\,\|B\|}

    0 is backpropagation, 90 is where random feedback starts; zero weights count as 90. Layers of direct feedback
    alignment, which have no counterpart of W, are left out.

    >>> from sleepconv.wake import without_weight_transport
    >>> model = without_weight_transport(nn.Linear(2, 1, bias=False), "kolen_pollack")
    >>> _ = model.load_state_dict({"weight": torch.eye(2)[:1], "feedback.weight": torch.ones(1, 2)})
    >>> round(alignment(model)[""], 4)
    45.0
    """
    angles = {}
    for name, layer in unwrapped(model).named_modules():
        if isinstance(layer, FeedbackLayer) and not isinstance(layer.feedback, DirectFeedback):
            weight = full_tensor(layer.weight)
            with torch.random.fork_rng():  # batchwise sign symmetry draws its sizes
                feedback = full_tensor(layer.feedback.weights_for(weight))
            angles[name] = _angle(weight.flatten().double(), feedback.flatten().double())
    return angles


def _angle(a: Tensor, b: Tensor) -> float:
    lengths = float(a.norm() * b.norm())
    return degrees(acos(min(1.0, max(-1.0, float(a @ b) / lengths)))) if lengths else 90.0
