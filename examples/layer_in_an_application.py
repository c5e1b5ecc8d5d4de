"""A locally connected layer in an application: the calibration of a camera; runs in seconds.

Every pixel of a sensor has its own gain and offset. A filter per position learns to undo them, and to fill in pixels
that are dead from those around them; a convolution, which does the same everywhere, cannot.
"""

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sleepconv.functional import decompositions
from sleepconv.nn import LocallyConnected2d, memory_table

torch.manual_seed(0)
GAIN, OFFSET = 1 + 0.3 * torch.randn(1, 32, 32), 0.3 * torch.randn(1, 32, 32)
GAIN[torch.rand(1, 32, 32) < 0.02] = 0  # dead pixels


def photographs(number: int) -> tuple[Tensor, Tensor]:
    """Smooth scenes, and what the sensor makes of them."""
    scenes = F.interpolate(torch.randn(number, 1, 5, 5), size=(32, 32), mode="bicubic")
    return GAIN * scenes + OFFSET, scenes


def train(layer: nn.Module) -> float:
    """Return the root mean square error on new scenes."""
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.03, weight_decay=0)
    for _ in range(150):
        raw, scenes = photographs(64)
        optimizer.zero_grad()
        F.mse_loss(layer(raw), scenes).backward()
        optimizer.step()
    raw, scenes = photographs(500)
    return F.mse_loss(layer(raw), scenes).sqrt().item()


# How much memory a larger sensor would need, without allocating it.
with torch.device("meta"):
    full_hd = LocallyConnected2d(1, 1, 3, input_size=(1080, 1920), padding=1, bias="neuron")
(needed,) = memory_table(full_hd, torch.empty(8, 1, 1080, 1920, device="meta"))
print(f"for a sensor of 1920×1080 pixels: {needed.total / 1e6:.0f} MB in training")

layer = LocallyConnected2d(1, 1, 3, input_size=32, padding=1, bias="neuron")
raw, scenes = photographs(500)
print(f"error of the sensor {F.mse_loss(raw, scenes).sqrt().item():.2f}")
print(f"after a convolution {train(nn.Conv2d(1, 1, 3, padding=1)):.2f}, after a filter per pixel {train(layer):.2f}")

with tempfile.TemporaryDirectory() as folder:  # a file for a machine where sleepconv is not installed
    program = torch.export.export(layer, (raw,)).run_decompositions(decompositions())
    torch.export.save(program, Path(folder) / "calibration.pt2")
    deployed = torch.export.load(Path(folder) / "calibration.pt2").module()
    torch.testing.assert_close(deployed(raw), layer(raw))
print("exported without sleepconv: the same results")
