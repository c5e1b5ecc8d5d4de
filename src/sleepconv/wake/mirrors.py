"""The mirror phase of weight mirrors: noise through every layer, by itself or as a part of sleep."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from sleepconv.functional.feedback import Convolution, Linear, LocallyConnectedProduct, Product
from sleepconv.functional.sizes import check_int, padding_sides
from sleepconv.nn.modules import LocallyConnected, PerPatchLinear
from sleepconv.sleep import Sleep
from sleepconv.sleep.distributed import agree_, gathered, share_
from sleepconv.sleep.layers import unwrapped
from sleepconv.wake.feedback_layers import FeedbackLayer, MirrorFeedback

_WINDOWS = 8  # of a convolution, along each axis


@torch.no_grad()
def mirror_(model: nn.Module) -> None:
    r"""Let the feedback weights of ``WeightMirrors`` (or ``KolenPollack``) approach the forward ones, in place.

    .. math:: B \leftarrow (1 - \lambda)\,B + \lambda\,\langle y\,\xi^\top \rangle, \qquad y = W \xi

    White noise ξ drives every layer by itself, without its bias. In a locally connected layer, neurons at the border
    see noise in the place of padding, as they see patterns there in sleep.

    >>> from sleepconv.wake import WeightMirrors, alignment, without_weight_transport
    >>> model = without_weight_transport(nn.Conv2d(2, 4, 3), WeightMirrors(patterns=500, decay=1.0))
    >>> mirror_(model)
    >>> alignment(model)[""] < 5
    True
    """
    layers = _mirroring(model)
    feedbacks: dict[str, Any] = {name: layer.feedback for name, layer in layers.items()}
    with gathered(feedbacks, unwrapped(model)):
        for name, layer in layers.items():
            _mirror_layer_(layer, feedbacks[name])
    agree_(feedbacks, model)


def mirror_in_sleep(sleep: Sleep, *, every: int = 1) -> RemovableHandle:
    """Make the mirror phase a part of sleep, after the weights have been shared.

    The mirror images of neurons that share are then shared too, unless the conversion said otherwise, which averages
    their noise.

    Args:
        sleep: the sleep to extend.
        every: optimizer steps from phase to phase, at least, as ``sleep.step`` counts them: a network that sleeps after
            every step need not mirror its weights as often. With 1, every sleep has a phase.

    Returns:
        a handle whose ``remove()`` undoes this.

    >>> import sleepconv
    >>> from sleepconv.wake import WeightMirrors, alignment, without_weight_transport
    >>> model = sleepconv.to_locally_connected(nn.Conv2d(1, 4, 3), torch.randn(1, 1, 9, 9))
    >>> model = without_weight_transport(model, WeightMirrors(patterns=100, decay=1.0))
    >>> sleep = Sleep(model, every=1)
    >>> handle, record = mirror_in_sleep(sleep), sleep.sleep()
    >>> alignment(model)[""] < 20
    True
    """
    if not isinstance(sleep, Sleep):
        raise TypeError(f"mirror_in_sleep takes a Sleep, got {type(sleep).__name__}")
    check_int("every", every)
    _mirroring(sleep.model)

    def after_sleep(layers: Mapping[str, Any]) -> None:
        if every > 1 and sleep.last_sleep is not None and sleep.last_sleep // every == sleep.steps // every:
            return
        mirror_(sleep.model)
        for name, grids in sleep.grids.items():
            if isinstance(layers[name], MirrorFeedback):
                share_(layers[name].weight, grids)

    return sleep.register_sleep_hook(after_sleep)


def mirrors(model: nn.Module) -> dict[str, Any]:
    """Return the layers that have a mirror phase, by name."""
    return {
        name: layer
        for name, layer in unwrapped(model).named_modules()
        if isinstance(layer, FeedbackLayer) and isinstance(layer.feedback, MirrorFeedback)
    }


def _mirroring(model: nn.Module) -> dict[str, Any]:
    found = mirrors(model)
    if not found:
        raise ValueError("the model has no weight mirrors; call without_weight_transport(model, WeightMirrors()) first")
    return found


def _mirror_layer_(layer: Any, feedback: MirrorFeedback) -> None:
    weight = layer.weight.detach().to(torch.promote_types(layer.weight.dtype, torch.float32))
    product, shape = _driven_by_noise(layer)
    noise = torch.randn(feedback.patterns, *shape, dtype=weight.dtype, device=weight.device)
    responses = product.forward(noise, weight)
    seen = responses.numel() // responses.shape[1] if isinstance(product, Convolution) else feedback.patterns
    image = product.weight_gradient(noise, responses.contiguous(), weight) / seen
    feedback.weight.lerp_(image.to(feedback.weight.dtype), feedback.decay)


def _driven_by_noise(layer: Any) -> tuple[Product, tuple[int, ...]]:
    """Return what the layer computes on noise without padding, and the shape of one noise pattern."""
    if isinstance(layer, PerPatchLinear):
        return Linear(), (layer.num_patches, layer.in_features)
    if isinstance(layer, nn.Linear):
        return Linear(), (layer.in_features,)
    stride, dilation, axes = layer.stride, layer.dilation, len(layer.stride)
    if isinstance(layer, LocallyConnected):
        sides = padding_sides(layer.padding, layer.kernel_size, stride, dilation)
        size = [n + before + behind for n, (before, behind) in zip(layer.input_size, sides, strict=True)]
        product: Product = LocallyConnectedProduct(stride, (0,) * 2 * axes, dilation, layer.groups, False)
        return product, (layer.in_channels, *size)
    reach = [d * (k - 1) + 1 for k, d in zip(layer.kernel_size, dilation, strict=True)]
    size = [r + s * (_WINDOWS - 1) for r, s in zip(reach, stride, strict=True)]
    return Convolution(stride, (0,) * axes, dilation, layer.groups), (layer.in_channels, *size)
