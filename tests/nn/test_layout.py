import pytest
import torch
from torch import nn

from sleepconv import to_locally_connected

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def gradients(model, x, grad):
    """Of the input and of each normalisation; in float64, so that only another order of numbers makes a difference."""
    x = x.clone().requires_grad_()
    model(x).backward(grad)
    norms = [module for module in model.modules() if isinstance(module, tuple(NORMS.values()))]
    return [x.grad] + [parameter.grad for norm in norms for parameter in norm.parameters()]


def deep(axes):
    convolution, norm = CONVOLUTIONS[axes], NORMS[axes]
    return nn.Sequential(convolution(3, 4, 3), norm(4), nn.ReLU(), convolution(4, 5, 2), norm(5), nn.ReLU())


def between_normalisations(axes):
    return nn.Sequential(NORMS[axes](3), CONVOLUTIONS[axes](3, 4, 3), NORMS[axes](4))


@pytest.mark.parametrize(("build", "keep_first"), [(deep, 0), (deep, 1), (between_normalisations, 0)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_normalised_networks_have_the_gradients_of_the_convolutional_one(axes, batch, training, build, keep_first):
    torch.manual_seed(0)
    model = build(axes).double().train(training)
    x = torch.randn(batch, 3, *(6,) * axes, dtype=torch.float64)
    local = to_locally_connected(model, x, keep_first=keep_first, copy_weights=True)
    grad = torch.randn_like(model(x))
    for ours, theirs in zip(gradients(local, x, grad), gradients(model, x, grad), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("axes", [2, 3])
def test_one_image_lies_as_pytorchs_own_channels_last_images_do(axes):
    layer = to_locally_connected(CONVOLUTIONS[axes](3, 4, 3), torch.randn(1, 3, *(6,) * axes))
    layer.contiguous_output = False
    memory = {2: torch.channels_last, 3: torch.channels_last_3d}[axes]
    y = layer(torch.randn(1, 3, *(6,) * axes)).detach()
    assert y.stride() == torch.empty(y.shape, memory_format=memory).stride()
