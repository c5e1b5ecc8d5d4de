"""Locally connected networks that become convolutional in their sleep."""

from sleepconv import functional, kernels, models, nn, sleep, testing, training
from sleepconv.nn import NothingConvertedWarning, PerPatchLinear, to_convolutional, to_locally_connected, to_per_patch
from sleepconv.sleep import Sleep

__all__ = [
    "NothingConvertedWarning",
    "PerPatchLinear",
    "Sleep",
    "functional",
    "kernels",
    "models",
    "nn",
    "sleep",
    "testing",
    "to_convolutional",
    "to_locally_connected",
    "to_per_patch",
    "training",
]
