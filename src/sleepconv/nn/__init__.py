"""Locally connected and per-patch layers, and the conversion of shared layers to them and back."""

from sleepconv.nn.conversion import NothingConvertedWarning, to_locally_connected, to_per_patch
from sleepconv.nn.grid_convolution import GridConvolution
from sleepconv.nn.inference import to_convolutional, to_grid_convolutional
from sleepconv.nn.layout import (
    LayoutKeepingBatchNorm2d,
    LayoutKeepingReLU,
    forget_layout,
    keep_layout,
)
from sleepconv.nn.modules import (
    LocallyConnected,
    LocallyConnected1d,
    LocallyConnected2d,
    LocallyConnected3d,
    PerPatchLinear,
)
from sleepconv.nn.planning import LayerMemory, memory_table

__all__ = [
    "GridConvolution",
    "LayerMemory",
    "LayoutKeepingBatchNorm2d",
    "LayoutKeepingReLU",
    "LocallyConnected",
    "LocallyConnected1d",
    "LocallyConnected2d",
    "LocallyConnected3d",
    "NothingConvertedWarning",
    "PerPatchLinear",
    "forget_layout",
    "keep_layout",
    "memory_table",
    "to_convolutional",
    "to_grid_convolutional",
    "to_locally_connected",
    "to_per_patch",
]
