"""Make a network of yours locally connected, let it sleep, and check what that did; runs in seconds."""

import torch
from torch import nn

import sleepconv
from sleepconv.sleep import Instant
from sleepconv.testing import assert_convolutional


def your_network() -> nn.Module:
    """Any model with convolutions: the first stages of torchvision's ResNet18 if it is installed, else our ResNet20."""
    try:
        from torchvision.models import resnet18
    except (ImportError, RuntimeError):
        return sleepconv.models.resnet20()
    return nn.Sequential(*list(resnet18().children())[:6], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


model, images = your_network(), torch.randn(4, 3, 32, 32)
local = sleepconv.to_locally_connected(model, images, keep_first=1)  # the first layer stays a convolution
shared, own = (sum(p.numel() for p in network.parameters()) for network in (model, local))
print(f"{shared:,} weights, {own:,} when locally connected")

Instant()(local)  # every grid's filters become their mean
assert_convolutional(local)

convolutional = sleepconv.to_convolutional(local)  # one filter for all grids: the way back
assert sum(p.numel() for p in convolutional.parameters()) == shared
print("asleep, it has one filter per grid; to_convolutional makes it one per layer")
