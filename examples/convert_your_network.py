"""Make a network of yours locally connected, let it sleep, and check what that did; runs in seconds."""

import torch

import sleepconv
from sleepconv.sleep import Instant
from sleepconv.testing import assert_convolutional

try:  # any model with convolutions: torchvision's or timm's, if they are installed
    from torchvision.models import resnet18

    model, size = resnet18(num_classes=10), 64
except (ImportError, RuntimeError):
    model, size = sleepconv.models.resnet18(num_classes=10), 64

images = torch.randn(4, 3, size, size)
local = sleepconv.to_locally_connected(model, images, keep_first=1)  # the first layer stays a convolution
weights = {name: sum(p.numel() for p in m.parameters()) for name, m in (("shared", model), ("local", local))}
print(f"{type(model).__name__}: {weights['shared']:,} weights, locally connected {weights['local']:,}")

Instant()(local)  # every grid's filters become their mean
assert_convolutional(local)
convolutional = sleepconv.to_convolutional(local).eval()
with torch.no_grad():
    change = (convolutional(images) - local.eval()(images)).abs().max()
print(f"one filter per grid; with one filter for all grids the scores change by up to {change:.2g}")
assert not any(isinstance(m, sleepconv.nn.LocallyConnected2d) for m in convolutional.modules())
