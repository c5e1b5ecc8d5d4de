"""Locally connected networks that become convolutional in their sleep."""

from sleepconv import functional, kernels, models, nn, sleep, training
from sleepconv.nn import NothingConvertedWarning, PerPatchLinear, to_convolutional, to_locally_connected, to_per_patch

__all__ = [
    "NothingConvertedWarning",
    "PerPatchLinear",
    "functional",
    "kernels",
    "models",
    "nn",
    "sleep",
    "to_convolutional",
    "to_locally_connected",
    "to_per_patch",
    "training",
]
