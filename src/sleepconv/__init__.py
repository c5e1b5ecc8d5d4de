"""Locally connected networks that become convolutional in their sleep."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sleepconv import data, functional, kernels, models, nn, optim, recipes, simulation, sleep, testing, training
    from sleepconv.nn import (
        NothingConvertedWarning,
        PerPatchLinear,
        to_convolutional,
        to_locally_connected,
        to_per_patch,
    )
    from sleepconv.sleep import Sleep
    from sleepconv.training import Run, RunFolder, train

# Where each name lives, if it is not a module itself. Names are imported when they are first used: PyTorch takes
# seconds to import, and `sleepconv --help` should not.
_HOMES = {
    **dict.fromkeys(["data", "functional", "kernels", "models", "nn", "optim"]),
    **dict.fromkeys(["recipes", "simulation", "sleep", "testing", "training"]),
    **dict.fromkeys(
        ["NothingConvertedWarning", "PerPatchLinear", "to_convolutional", "to_locally_connected", "to_per_patch"], "nn"
    ),
    **dict.fromkeys(["Run", "RunFolder", "train"], "training"),
    "Sleep": "sleep",
}

__all__ = [
    "NothingConvertedWarning",
    "PerPatchLinear",
    "Run",
    "RunFolder",
    "Sleep",
    "data",
    "functional",
    "kernels",
    "models",
    "nn",
    "optim",
    "recipes",
    "simulation",
    "sleep",
    "testing",
    "to_convolutional",
    "to_locally_connected",
    "to_per_patch",
    "train",
    "training",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sleepconv' has no attribute {name!r}")
    home = _HOMES[name]
    return import_module(f"sleepconv.{name}") if home is None else getattr(import_module(f"sleepconv.{home}"), name)


def __dir__() -> list[str]:
    return __all__
