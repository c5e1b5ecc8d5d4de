"""Watch Eq. 4 of the paper: filters of one grid, pulled together by anti-Hebbian learning; writes an animated GIF.

``python watch_the_hebbian_rule.py [hebbian.gif]`` takes seconds; it needs Pillow (``pip install '.[data]'``).
"""

import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image

from sleepconv.functional import hebbian_step_, weight_snr

NEURONS, SIDE, ZOOM = 12, 3, 14


def frame(filters: torch.Tensor) -> Image.Image:
    """All filters of the grid in a row: blue is positive, red is negative."""
    strength = filters.reshape(NEURONS, SIDE, SIDE).clamp(-2, 2) / 2
    row = torch.zeros(3, SIDE + 2, NEURONS * (SIDE + 1) + 1) + 1
    for neuron, values in enumerate(strength):
        left = neuron * (SIDE + 1) + 1
        red, blue = 1 - values.clamp(min=0), 1 + values.clamp(max=0)
        row[:, 1 : 1 + SIDE, left : left + SIDE] = torch.stack([red, torch.minimum(red, blue), blue])
    pixels = (row * 255).byte().permute(1, 2, 0).numpy()
    return Image.fromarray(pixels).resize((row.shape[2] * ZOOM, row.shape[1] * ZOOM), Image.Resampling.NEAREST)


generator = torch.Generator().manual_seed(0)
wanted = torch.tensor([1.0, 0, -1] * SIDE)  # the mean filter: an edge
weight = (wanted + torch.randn(NEURONS, SIDE**2, generator=generator)).reshape(1, NEURONS, 1, SIDE**2)
initial, velocity = weight.clone(), torch.zeros_like(weight)
frames, report = [frame(weight)], [-float(weight_snr(weight[0, :, 0]).log())]
for step in range(240):
    pattern = torch.randn(1, 1, SIDE**2, generator=generator)  # what all neurons of the grid see
    hebbian_step_(weight, velocity, initial, pattern, rate=0.02, decay=1e-3, momentum=0.5)
    if step % 6 == 5:
        frames.append(frame(weight))
        report.append(-float(weight_snr(weight[0, :, 0]).log()))

path = Path(sys.argv[1] if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "hebbian.gif")
frames[0].save(path, save_all=True, append_images=frames[1:], duration=120, loop=0)
print("−log SNR:", " ".join(f"{value:.1f}" for value in report[::8]))
print(f"{len(frames)} frames in {path}")
