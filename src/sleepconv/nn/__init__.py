"""Modules: locally connected and per-patch layers, and the way from shared layers to them and back."""

from sleepconv.nn.convert import to_convolutional, to_locally_connected
from sleepconv.nn.convert_patches import to_per_patch
from sleepconv.nn.layout import LayoutKeepingBatchNorm2d, LayoutKeepingReLU, forget_layout, keep_layout
from sleepconv.nn.locally_connected import (
    LocallyConnected,
    LocallyConnected1d,
    LocallyConnected2d,
    LocallyConnected3d,
)
from sleepconv.nn.per_patch import PerPatchLinear
from sleepconv.nn.surgery import NothingConvertedWarning

__all__ = [
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
    "to_convolutional",
    "to_locally_connected",
    "to_per_patch",
]
