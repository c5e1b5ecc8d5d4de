"""Locally connected networks that become convolutional in their sleep."""

from sleepconv import functional, kernels, models, nn, sleep, training
from sleepconv.nn import NothingConvertedWarning, to_convolutional, to_locally_connected

__all__ = [
    "NothingConvertedWarning",
    "functional",
    "kernels",
    "models",
    "nn",
    "sleep",
    "to_convolutional",
    "to_locally_connected",
    "training",
]
