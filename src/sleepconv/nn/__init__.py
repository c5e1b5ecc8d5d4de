"""Modules: locally connected layers, and the way from convolutions to them and back."""

from sleepconv.nn.convert import NothingConvertedWarning, to_convolutional, to_locally_connected
from sleepconv.nn.layout import LayoutKeepingBatchNorm2d, LayoutKeepingReLU
from sleepconv.nn.locally_connected import (
    LocallyConnected,
    LocallyConnected1d,
    LocallyConnected2d,
    LocallyConnected3d,
)

__all__ = [
    "LayoutKeepingBatchNorm2d",
    "LayoutKeepingReLU",
    "LocallyConnected",
    "LocallyConnected1d",
    "LocallyConnected2d",
    "LocallyConnected3d",
    "NothingConvertedWarning",
    "to_convolutional",
    "to_locally_connected",
]
