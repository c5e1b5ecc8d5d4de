"""Locally connected networks that become convolutional in their sleep."""

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sleepconv import (
        analysis,
        brain,
        experiments,
        functional,
        kernels,
        models,
        nn,
        optim,
        simulation,
        sleep,
        testing,
        wake,
    )
    from sleepconv.memory import keep_freed_memory
    from sleepconv.nn import (
        NothingConvertedWarning,
        PerPatchLinear,
        to_convolutional,
        to_grid_convolutional,
        to_locally_connected,
        to_per_patch,
    )
    from sleepconv.sleep import Sleep, learn_grids

    __version__: str

# The module of each name that is not a module itself. Names are imported at first use: importing PyTorch takes seconds,
# and `sleepconv --help` should not.
_HOMES = {
    **dict.fromkeys(["analysis", "brain", "experiments", "functional", "kernels", "models", "nn"]),
    **dict.fromkeys(["optim", "simulation", "sleep", "testing", "wake"]),
    **dict.fromkeys(["NothingConvertedWarning", "PerPatchLinear", "to_convolutional", "to_grid_convolutional"], "nn"),
    **dict.fromkeys(["to_locally_connected", "to_per_patch"], "nn"),
    "Sleep": "sleep",
    "learn_grids": "sleep",
    "keep_freed_memory": "memory",
}

__all__ = [
    "NothingConvertedWarning",
    "PerPatchLinear",
    "Sleep",
    "__version__",
    "analysis",
    "brain",
    "experiments",
    "functional",
    "keep_freed_memory",
    "kernels",
    "learn_grids",
    "models",
    "nn",
    "optim",
    "simulation",
    "sleep",
    "testing",
    "to_convolutional",
    "to_grid_convolutional",
    "to_locally_connected",
    "to_per_patch",
    "wake",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module 'sleepconv' has no attribute {name!r}")
    home = _HOMES[name]
    return import_module(f"sleepconv.{name}") if home is None else getattr(import_module(f"sleepconv.{home}"), name)


def _version() -> str:
    """Return the installed version; that of a source tree which is not installed is unknown."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sleepconv")
    except PackageNotFoundError:
        return "unknown"


def __dir__() -> list[str]:
    return __all__


class _RegisterOperators(MetaPathFinder):
    """An import hook that registers our operators with PyTorch (``torch.export.load`` needs them) once it is imported.

    If our kernels import PyTorch, the operators are registered after the kernels, which they need.
    """

    def __init__(self) -> None:
        self.executing: list[str] = []

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return what the other finders find, with a loader that reports when the module has been executed."""
        if name not in ("torch", "sleepconv.kernels"):
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Watched(spec.loader, self)
        return spec

    def done(self) -> None:
        """Register the operators after the outermost watched module has been executed."""
        self.executing.pop()
        if not self.executing:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            import_module("sleepconv.functional.operators")


class _Watched(Loader):
    def __init__(self, loader: Loader, watcher: _RegisterOperators) -> None:
        self.loader, self.watcher = loader, watcher

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader
        self.watcher.executing.append(module.__name__)
        try:
            self.loader.exec_module(module)
        except BaseException:
            self.watcher.executing.pop()
            raise
        self.watcher.done()


if "torch" in sys.modules:
    import_module("sleepconv.functional.operators")
else:
    sys.meta_path.insert(0, _RegisterOperators())
