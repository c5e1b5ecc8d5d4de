r"""The rules of learning without weight transport.

Backpropagation sends the error δ of a layer back through the transpose of the layer's own weights, δ' = Wᵀδ. Here it
is δ' = Bᵀδ with feedback weights B; the weights learn as in backpropagation, ΔW ∝ δ xᵀ. The rules differ in where B
comes from. For a locally connected layer B is per neuron, like W.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from sleepconv.functional.sizes import check_finite, check_int
from sleepconv.wake.feedback_layers import (
    DirectFeedback,
    Feedback,
    MirrorFeedback,
    SignFeedback,
    StoredFeedback,
    Taps,
)


@dataclass(frozen=True)
class Seen:
    """What a rule may know of a layer besides its weights.

    Attributes:
        share_in_sleep: whether sleep shares the feedback weights too.
        input_shape: of one input of the layer, without the batch; known only with a sample input.
        outputs: the number of outputs of the model; known only with a sample input.
        taps: what carries the error of the output.
    """

    share_in_sleep: bool
    input_shape: tuple[int, ...] = ()
    outputs: int = 0
    taps: Taps | None = None


class WakeRule(Protocol):
    """What ``without_weight_transport`` needs of a rule.

    >>> isinstance(KolenPollack().feedback(nn.Linear(2, 3), Seen(share_in_sleep=True)), Feedback)
    True
    """

    def feedback(self, layer: nn.Module, seen: Seen) -> Feedback:
        """Return the feedback of a layer."""


@dataclass(frozen=True)
class FeedbackAlignment:
    r"""Send errors back through fixed random weights.

    .. math:: \delta_{l-1} = B^\top \delta_l, \qquad B \sim N(0, \mathrm{scale}^2 \langle W^2 \rangle)

    Lillicrap et al. (2016): the forward weights come to align with B. In a network that sleeps, the first sleep shares
    B, and it stays.

    Args:
        scale: the size of B, relative to that of W at the conversion.

    >>> from sleepconv.wake import without_weight_transport
    >>> model = without_weight_transport(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), FeedbackAlignment())
    >>> list(model.state_dict())[:3]
    ['0.weight', '0.bias', '0.feedback.weight']
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        """Check the arguments."""
        _check_scale(self.scale)

    def feedback(self, layer: nn.Module, seen: Seen) -> Feedback:
        """Return fixed random weights."""
        drawn = _random_like(layer.weight, self.scale)  # type: ignore[arg-type]
        return StoredFeedback(layer, drawn, learned=False, share_in_sleep=seen.share_in_sleep)


@dataclass(frozen=True)
class SignSymmetry:
    r"""Send errors back through weights that have the signs of the forward ones.

    .. math:: \delta_{l-1} = B^\top \delta_l, \qquad B = \langle |W| \rangle\, M \odot \mathrm{sign}(W)

    Liao, Leibo and Poggio (2016): only one bit of each weight is transported. Their uniform variant has M = 1, the
    batch-wise one draws M for every batch; here from 0 to 2, so that its mean is 1. The mean size of the layer's
    weights, which they do not have, keeps the size of the error in networks without normalisation.

    Args:
        magnitudes: "uniform" or "batchwise".

    >>> from sleepconv.wake import alignment, without_weight_transport
    >>> model = without_weight_transport(nn.Linear(1, 2, bias=False), SignSymmetry())
    >>> _ = nn.init.constant_(model.weight, -0.5)
    >>> round(alignment(model)[""])
    0
    """

    magnitudes: Literal["uniform", "batchwise"] = "uniform"

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.magnitudes not in ("uniform", "batchwise"):
            raise ValueError(f"`magnitudes` must be 'uniform' or 'batchwise', got {self.magnitudes!r}")

    def feedback(self, layer: nn.Module, seen: Seen) -> Feedback:
        """Return the signs of the layer's weights."""
        return SignFeedback(self.magnitudes)


@dataclass(frozen=True)
class KolenPollack:
    r"""Let the feedback weights learn what the forward weights learn, and let both decay.

    .. math:: \Delta W = \Delta B = -\eta\,\delta x^\top, \qquad
        W_t - B_t = (1 - \eta\lambda)^t\,(W_0 - B_0)

    Kolen and Pollack (1994), after Akrout et al. (2019). A synapse and its feedback synapse see the same two neurons,
    so both can compute the update without knowing each other. The optimizer must hold both (``model.parameters()`` has
    them) and decay both: with SGD without momentum, or with AdamW, the difference shrinks by 1 − ηλ in each step.

    Args:
        scale: the size of B at the start, relative to that of W.
        shrink: multiply the forward weights by this at the conversion. Both W and B contain all that was learned, and
            small initial weights are soon exceeded by it: they align long before the decay would align them. In a
            network with normalisation, small weights compute the same.
        patterns: the number of noise patterns of a mirror phase, as of ``WeightMirrors``; 0 for none. The phase shows B
            the initial weights, and between the phases both learn the same.
        decay: the part of B that is replaced in each mirror phase.

    >>> from sleepconv.wake import without_weight_transport
    >>> model = without_weight_transport(nn.Linear(4, 3), KolenPollack())
    >>> model(torch.ones(1, 4)).sum().backward()
    >>> torch.equal(model.weight.grad, model.feedback.weight.grad)
    True
    """

    scale: float = 1.0
    shrink: float = 1.0
    patterns: int = 0
    decay: float = 0.1

    def __post_init__(self) -> None:
        """Check the arguments."""
        _check_scale(self.scale)
        check_finite("shrink", self.shrink, least=0, most=1)
        if self.shrink == 0:
            raise ValueError("`shrink` must be above 0, got 0")
        check_int("patterns", self.patterns, least=0)
        check_finite("decay", self.decay, least=0, most=1)

    def feedback(self, layer: nn.Module, seen: Seen) -> Feedback:
        """Return weights that learn with the layer's, which shrink first."""
        with torch.no_grad():
            layer.weight.mul_(self.shrink)  # type: ignore[operator]
        drawn = _random_like(layer.weight, self.scale)  # type: ignore[arg-type]
        learned = bool(layer.weight.requires_grad)
        if not self.patterns:
            return StoredFeedback(layer, drawn, learned=learned, share_in_sleep=seen.share_in_sleep)
        phase: dict[str, Any] = {"patterns": self.patterns, "decay": self.decay}
        return MirrorFeedback(layer, drawn, learned=learned, share_in_sleep=seen.share_in_sleep, **phase)


@dataclass(frozen=True)
class WeightMirrors:
    r"""Let the feedback weights become a mirror image of the forward ones in a phase of noise.

    .. math:: y = W \xi, \quad \xi \sim N(0, 1), \qquad
        B \leftarrow (1 - \lambda)\,B + \lambda\,\langle y\,\xi^\top \rangle

    Akrout et al. (2019): white noise through a layer correlates its input and output by W, so Hebbian learning with
    decay finds it. The phase is a part of sleep (``mirror_in_sleep``), or comes when you call ``mirror_``.

    Args:
        scale: the size of B at the start, relative to that of W.
        patterns: the number of noise patterns in each phase.
        decay: λ, the part of B that is replaced in each phase.

    >>> from sleepconv.wake import alignment, mirror_, without_weight_transport
    >>> model = without_weight_transport(nn.Linear(4, 3), WeightMirrors(patterns=10_000, decay=1.0))
    >>> mirror_(model)
    >>> alignment(model)[""] < 5
    True
    """

    scale: float = 1.0
    patterns: int = 64
    decay: float = 0.1

    def __post_init__(self) -> None:
        """Check the arguments."""
        _check_scale(self.scale)
        check_int("patterns", self.patterns)
        check_finite("decay", self.decay, least=0, most=1)

    def feedback(self, layer: nn.Module, seen: Seen) -> Feedback:
        """Return random weights that a mirror phase will change."""
        drawn = _random_like(layer.weight, self.scale)  # type: ignore[arg-type]
        phase: dict[str, Any] = {"patterns": self.patterns, "decay": self.decay}
        return MirrorFeedback(layer, drawn, learned=False, share_in_sleep=seen.share_in_sleep, **phase)


@dataclass(frozen=True)
class DirectFeedbackAlignment:
    r"""Send the error of the model's output directly to the input of every layer, through fixed random weights.

    .. math:: \frac{\partial L}{\partial x_l} \mathrel{:=} B_l\, e, \qquad e = \frac{\partial L}{\partial y}, \qquad
        (B_l)_{jk} \sim N(0, \mathrm{scale}^2 / d_l)

    Nøkland (2016). Here d_l is the number of inputs of layer l, so that B keeps the length of the error. What stands
    between two layers (nonlinearities, normalisation, pooling, shortcuts) passes this error on to the layer below by
    its own derivative. The conversion needs a sample input, which tells the sizes of all inputs and of the output.

    Args:
        scale: the size of B.

    >>> from sleepconv.wake import without_weight_transport
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> model = without_weight_transport(model, DirectFeedbackAlignment(), sample_input=torch.zeros(1, 4))
    >>> model[2].feedback.weight.shape
    torch.Size([3, 2])
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        """Check the arguments."""
        _check_scale(self.scale)

    def feedback(self, layer: nn.Module, seen: Seen) -> Feedback:
        """Return a fixed projection of the output's error to the input of a layer."""
        assert seen.taps is not None
        shape = seen.input_shape
        weight: Tensor = layer.weight  # type: ignore[assignment]
        places = shape if isinstance(layer, nn.Linear) or not hasattr(layer, "in_channels") else (*shape[1:], shape[0])
        std = self.scale / weight.new_empty(shape, device="meta").numel() ** 0.5
        drawn = weight.new_empty((*places, seen.outputs)).normal_(0, std)
        return DirectFeedback(layer, drawn, seen.taps, share_in_sleep=seen.share_in_sleep)


RULES: dict[str, type[WakeRule]] = {
    "feedback_alignment": FeedbackAlignment,
    "sign_symmetry": SignSymmetry,
    "kolen_pollack": KolenPollack,
    "weight_mirrors": WeightMirrors,
    "direct_feedback_alignment": DirectFeedbackAlignment,
}
"""The rules by the names that runs use."""


@torch.no_grad()
def _random_like(weight: Tensor, scale: float) -> Tensor:
    """Draw random weights whose size is ``scale`` times that of ``weight``, or of 1/√outputs if that is zero."""
    size = weight.detach().square().mean().sqrt()
    fallback = (weight.shape[-1] / weight.numel()) ** 0.5
    std = torch.where(size > 0, size, fallback) * scale
    return torch.randn_like(weight, requires_grad=False).mul_(std)


def _check_scale(scale: float) -> None:
    check_finite("scale", scale, least=0)
