"""Modules: locally connected layers, and the way from convolutions to them and back."""

from sleepconv.nn.batch_norm import LayoutKeepingBatchNorm2d
from sleepconv.nn.convert import NothingConvertedWarning, to_convolutional, to_locally_connected
from sleepconv.nn.locally_connected import (
    LocallyConnected,
    LocallyConnected1d,
    LocallyConnected2d,
    LocallyConnected3d,
)

__all__ = [
    "LayoutKeepingBatchNorm2d",
    "LocallyConnected",
    "LocallyConnected1d",
    "LocallyConnected2d",
    "LocallyConnected3d",
    "NothingConvertedWarning",
    "to_convolutional",
    "to_locally_connected",
]
