"""A model of your own: choose what to convert, train, sleep, and come back as convolutions; runs in seconds."""

import warnings

import torch
from torch import nn

import sleepconv
from sleepconv.nn import memory_table
from sleepconv.testing import assert_convolutional


def your_network() -> nn.Module:
    """Any model with convolutions: the first stages of torchvision's ResNet18 if it is installed, else our ResNet20."""
    try:
        from torchvision.models import resnet18
    except (ImportError, RuntimeError):
        return sleepconv.models.resnet20()
    return nn.Sequential(*list(resnet18().children())[:6], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


model, images, labels = your_network(), torch.randn(4, 3, 32, 32), torch.randint(10, (4,))

# What it would need, before anything is allocated: on the meta device, tensors have a size but no memory.
with torch.device("meta"):
    planned = sleepconv.to_locally_connected(your_network(), torch.empty(4, 3, 32, 32), keep_first=1)
table = memory_table(planned, torch.empty(4, 3, 32, 32))
largest = max(table, key=lambda layer: layer.total)
print(f"training needs {sum(layer.total for layer in table) / 1e6:.0f} MB, most of it in {largest.name}")

local = sleepconv.to_locally_connected(model, images, keep_first=1)  # the first layer stays a convolution
shared, own = (sum(p.numel() for p in network.parameters()) for network in (model, local))
print(f"{shared:,} weights, {own:,} when locally connected")

optimizer = torch.optim.AdamW(local.parameters(), lr=1e-3)
sleepconv.Sleep(local, every=2).attach(optimizer)
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.cross_entropy(local(images), labels).backward()
    optimizer.step()
assert_convolutional(local)  # after a sleep the filters of every grid agree

convolutional = sleepconv.to_grid_convolutional(local.eval())  # one filter per grid: the same network, and small
torch.testing.assert_close(convolutional(images), local(images), rtol=1e-5, atol=1e-5)
print(f"{sum(p.numel() for p in convolutional.parameters()):,} weights as convolutions, with equal outputs")

with warnings.catch_warnings(record=True, action="always") as said:
    sleepconv.to_convolutional(local)  # one filter per layer: another network, as the warning says
print(said[0].message)
