"""Tensors in, tensors out."""

from sleepconv.functional.grids import lateral_grids
from sleepconv.functional.locally_connected import (
    locally_connected1d,
    locally_connected2d,
    locally_connected3d,
    output_size,
)

__all__ = [
    "lateral_grids",
    "locally_connected1d",
    "locally_connected2d",
    "locally_connected3d",
    "output_size",
]
