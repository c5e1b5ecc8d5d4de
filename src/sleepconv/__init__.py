"""Locally connected networks that become convolutional in their sleep."""

from sleepconv import functional, kernels, models, nn
from sleepconv.nn import NothingConvertedWarning, PerPatchLinear, to_convolutional, to_locally_connected, to_per_patch

__all__ = [
    "NothingConvertedWarning",
    "PerPatchLinear",
    "functional",
    "kernels",
    "models",
    "nn",
    "to_convolutional",
    "to_locally_connected",
    "to_per_patch",
]
