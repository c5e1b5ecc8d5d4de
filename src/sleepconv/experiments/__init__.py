"""The experiments: what reproduces the paper, on top of the library.

>>> from sleepconv.experiments import Run, paper
>>> isinstance(paper.recipe("cifar10_local"), Run)
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sleepconv.experiments import data, paper, runs, training
    from sleepconv.experiments.data import register_dataset
    from sleepconv.experiments.paper import register_recipe, register_table
    from sleepconv.experiments.runs import Run, RunFolder, register_network, register_rule
    from sleepconv.experiments.training import train

# Imported when they are first used: tables need no PyTorch.
_HOMES = {
    **dict.fromkeys(["data", "paper", "runs", "training"]),
    "Run": "runs",
    "RunFolder": "runs",
    "register_dataset": "data",
    **dict.fromkeys(["register_network", "register_rule"], "runs"),
    **dict.fromkeys(["register_recipe", "register_table"], "paper"),
    "train": "training",
}

__all__ = [
    "Run",
    "RunFolder",
    "data",
    "paper",
    "register_dataset",
    "register_network",
    "register_recipe",
    "register_rule",
    "register_table",
    "runs",
    "train",
    "training",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sleepconv.experiments' has no attribute {name!r}")
    home = import_module(f"{__name__}.{_HOMES[name] or name}")
    return home if _HOMES[name] is None else getattr(home, name)
