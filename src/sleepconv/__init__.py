"""Locally connected networks that become convolutional in their sleep."""

from sleepconv import functional, kernels, models, nn, sleep, testing
from sleepconv.nn import NothingConvertedWarning, to_convolutional, to_locally_connected
from sleepconv.sleep import Sleep

__all__ = [
    "NothingConvertedWarning",
    "Sleep",
    "functional",
    "kernels",
    "models",
    "nn",
    "sleep",
    "testing",
    "to_convolutional",
    "to_locally_connected",
]
