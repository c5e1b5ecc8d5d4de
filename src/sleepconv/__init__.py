"""Locally connected networks that become convolutional in their sleep."""

from sleepconv import functional, kernels, models, nn
from sleepconv.nn import NothingConvertedWarning, to_convolutional, to_locally_connected

__all__ = [
    "NothingConvertedWarning",
    "functional",
    "kernels",
    "models",
    "nn",
    "to_convolutional",
    "to_locally_connected",
]
