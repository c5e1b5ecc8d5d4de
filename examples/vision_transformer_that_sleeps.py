"""A vision transformer whose patches have weights of their own, and share them in their sleep; runs in seconds."""

import torch
from torch import nn

from sleepconv import Sleep, to_locally_connected, to_per_patch
from sleepconv.experiments.data import Batches, load_task
from sleepconv.models import small_vit
from sleepconv.testing import assert_convolutional


def coloured_square(images: torch.Tensor) -> torch.Tensor:
    """The 12×24 field of the digits as the transformer takes images: square, with three channels."""
    return nn.functional.pad(images, (0, 0, 6, 6)).expand(-1, 3, -1, -1)


torch.manual_seed(0)
task = load_task("digits")
transformer = small_vit(image_size=24, patch_size=4, width=32, depth=2)
sample = coloured_square(torch.zeros(1, *task.input_size))
per_patch = to_per_patch(transformer, sample, copy_weights=True)  # linear layers, which start alike for all patches
model = to_locally_connected(per_patch, sample, copy_weights=True)  # the embedding of the patches
shared, own = (sum(p.numel() for p in network.parameters()) for network in (transformer, model))
print(f"{shared:,} weights; {own:,} when every patch has its own")

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
sleep = Sleep(model, every=5)
sleep.attach(optimizer)
batches = Batches(task.train, batch_size=64)
for epoch in range(6):
    for images, labels in batches.epoch(epoch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(coloured_square(images)), labels).backward()
        optimizer.step()

sleep.sleep_if_awake()
images, labels = Batches(task.evaluation, batch_size=len(task.evaluation), shuffle=False).batch(0, 0)
with torch.no_grad():
    accuracy = (model.eval()(coloured_square(images)).argmax(1) == labels).float().mean()
assert_convolutional(model)  # all patches agree again
print(f"{accuracy:.1%} of the test digits, {sleep.steps_since_sleep} steps since the last sleep")
