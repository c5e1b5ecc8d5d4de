"""How far feedback weights are from the forward ones."""

from math import acos, degrees

import torch
from torch import nn

from sleepconv.sleep.distributed import full_tensor
from sleepconv.sleep.layers import unwrapped
from sleepconv.wake.feedback_layers import DirectFeedback, FeedbackLayer


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
            feedback = full_tensor(layer.feedback.weights_for(weight))
            angles[name] = _angle(weight.flatten().double(), feedback.flatten().double())
    return angles


def _angle(a: torch.Tensor, b: torch.Tensor) -> float:
    lengths = float(a.norm() * b.norm())
    return degrees(acos(min(1.0, max(-1.0, float(a @ b) / lengths)))) if lengths else 90.0
