"""What a fit is worth is seen beside simple features: pixels, and the energy of oriented filters."""

import math
from collections import OrderedDict

import torch
from jaxtyping import Float32
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, conv2d

ORIENTATIONS = 4
WIDTHS = (1.5, 3.0)
REACH = 7


def pixels() -> nn.Module:
    """A network whose one layer, ``pixels``, is its input.

    >>> pixels()(torch.zeros(2, 3, 4, 4)).shape
    torch.Size([2, 48])
    """
    return nn.Sequential(OrderedDict(pixels=nn.Flatten()))


class OrientedEnergy(nn.Module):
    """Energy of Gabor filters (four orientations, two scales) on luminance, pooled to ``cells`` × ``cells``.

    >>> OrientedEnergy()(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 512])
    """

    def __init__(self, cells: int = 8) -> None:
        super().__init__()
        self.cells = cells
        pairs = [quadrature_pair(math.pi * i / ORIENTATIONS, width) for width in WIDTHS for i in range(ORIENTATIONS)]
        self.register_buffer("filters", torch.cat(pairs)[:, None])

    def forward(self, x: Tensor) -> Float32[Tensor, "images features"]:
        """The pooled energies of a batch of images."""
        answers = conv2d(x.mean(dim=1, keepdim=True), self.get_buffer("filters"), padding=REACH)
        energy = answers.unflatten(1, (-1, 2)).square().sum(dim=2).sqrt()
        return adaptive_avg_pool2d(energy, self.cells).flatten(1)


def quadrature_pair(angle: float, width: float) -> Float32[Tensor, "2 height width"]:
    """An even and an odd Gabor filter without mean and of length 1.

    >>> quadrature_pair(0.0, 1.5).flatten(1).norm(dim=1).round(decimals=3)
    tensor([1., 1.])
    """
    axis = torch.arange(-REACH, REACH + 1.0)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    phase = (columns * math.cos(angle) + rows * math.sin(angle)) * math.pi / (1.5 * width)
    window = torch.exp(-(rows**2 + columns**2) / (2 * width**2))
    pair = torch.stack([window * torch.cos(phase), window * torch.sin(phase)])
    pair -= pair.mean(dim=(1, 2), keepdim=True)
    return pair / pair.flatten(1).norm(dim=1)[:, None, None]
