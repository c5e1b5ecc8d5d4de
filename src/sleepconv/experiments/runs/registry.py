"""Networks, datasets and sleep rules by name: those of this package, and your own.

Your own are registered by a decorator, in a module that every process can import:

    from sleepconv.experiments import register_network

    @register_network("tiny")
    def tiny(channels: int, classes: int) -> nn.Module: ...

The module is imported wherever runs are made, trained or read, if ``SLEEPCONV_EXTENSIONS`` names it or its file
(several are separated by commas), or if an installed package has it as an entry point of ``sleepconv.extensions``. The
workers of a sweep also import the modules that have registered something in the process that started them.

Names are known without PyTorch, so that a run can be checked when it is made.
"""

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from sleepconv.names import did_you_mean

EXTENSIONS = "SLEEPCONV_EXTENSIONS"
_GROUP = "sleepconv.extensions"
_Registered = TypeVar("_Registered", bound=Callable[..., Any])


class Registry(Mapping[str, Any]):
    """Things of one kind by name, each imported when it is first used.

    >>> "resnet20" in NETWORKS, "resnet21" in NETWORKS
    (True, False)
    """

    def __init__(self, kind: str, home: str, own: tuple[str, ...]) -> None:
        self._kind, self._home, self._own = kind, home, own
        self._found: dict[str, Any] = {}

    def add(self, name: str, thing: Any) -> None:
        """Register a thing; a name can be taken once, but a module may be imported again."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of a {self._kind} must be a non-empty string, got {name!r}")
        known = self._found.get(name)
        if (known is None and name in self._own and not _is_ours(thing)) or (known and not _same(known, thing)):
            raise ValueError(f"there is already a {self._kind} {name!r}; choose another name")
        self._found[name] = thing

    def check(self, name: str) -> None:
        """Raise a ValueError that suggests the nearest name if there is nothing of this name."""
        if name not in self:
            known = ", ".join(self)
            hint = did_you_mean(name, self, f"there are {known}; {EXTENSIONS} names the modules that register others")
            raise ValueError(f"there is no {self._kind} {name!r}{hint}")

    def __getitem__(self, name: str) -> Any:
        self.check(name)
        if name not in self._found:
            importlib.import_module(self._home)
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._own and name not in self._found:
            load_extensions()
        return name in self._own or name in self._found

    def __iter__(self) -> Iterator[str]:
        load_extensions()
        return iter(dict.fromkeys([*self._own, *self._found]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    @property
    def registered(self) -> list[Any]:
        """What was registered from outside, so far."""
        return [thing for name, thing in self._found.items() if name not in self._own]


NETWORKS = Registry(
    "network",
    "sleepconv.experiments.training.network",
    ("resnet8", "resnet20", "resnet18", "resnet18_3x3", "small_vit", "mlp_mixer", "tanh_network", "three_layers"),
)
"""Functions of the number of channels and classes that return a convolutional network."""

RULES = Registry(
    "sleep rule", "sleepconv.experiments.training.network", ("instant", "hebbian", "circuit", "network_circuit")
)
"""Classes or functions that make a rule from a run's ``sleep_options``."""

DATASETS = Registry(
    "dataset",
    "sleepconv.experiments.data.tasks",
    (
        "digits",
        "digits-left",
        "cifar10",
        "cifar10-16x16",
        "cifar100",
        "tiny-imagenet",
        "imagenet",
        "fashion-mnist",
    ),
)
"""Each a ``Dataset``: its reader, and where its files belong."""


def register_network(name: str) -> Callable[[_Registered], _Registered]:
    """Register a function of the number of channels and of classes that returns a network, for ``Run(network=name)``.

    The network is convolutional; a run's ``connectivity`` converts it.

    >>> from torch import nn
    >>> @register_network("linear_filters")
    ... def linear_filters(channels, classes):
    ...     return nn.Sequential(nn.Conv2d(channels, 8, 3), nn.Flatten(), nn.LazyLinear(classes))
    >>> from sleepconv.experiments import Run
    >>> Run("mine", "digits", connectivity="convolutional", learning_rate=1e-2, network="linear_filters").network
    'linear_filters'
    """
    return _decorator(NETWORKS, name)


def register_rule(name: str) -> Callable[[_Registered], _Registered]:
    """Register a sleep rule, for ``Run(sleep_rule=name)``: it is called with the run's ``sleep_options``.

    >>> from sleepconv.sleep import Instant
    >>> @register_rule("one_filter")
    ... def one_filter(**options):
    ...     return Instant(period=1, **options)
    >>> "one_filter" in RULES
    True
    """
    return _decorator(RULES, name)


def load_extensions(others: Iterable[str] = ()) -> None:
    """Import the modules of ``SLEEPCONV_EXTENSIONS``, of installed entry points, and others, each once.

    A module that is named and cannot be imported is an error; an entry point that fails is a warning, since it may be
    of a package that has nothing to do with the work at hand.
    """
    named = [part.strip() for part in os.environ.get(EXTENSIONS, "").split(",")]
    for place in [*named, *others]:
        if place and place not in _LOADED:
            _LOADED.add(place)
            try:
                _import(place)
            except Exception as error:
                _LOADED.discard(place)
                raise ValueError(f"the extension {place} cannot be imported: {error}") from error
    if _GROUP not in _LOADED:
        _LOADED.add(_GROUP)
        for entry in entry_points(group=_GROUP):
            try:
                entry.load()
            except Exception as error:
                warnings.warn(f"the extension {entry.value} cannot be imported: {error}", stacklevel=2)


def extensions_for_workers() -> list[str]:
    """Return what another process must import to know what is registered here: files, or modules of packages.

    What a script itself registers (``__main__``) is not among them: importing it would run it.

    >>> "__main__" in extensions_for_workers()
    False
    """
    things = [thing for registry in (NETWORKS, RULES, DATASETS) for thing in registry.registered]
    modules = dict.fromkeys(_module(thing) for thing in things)
    return [_place(module) for module in modules if module != "__main__" and module in sys.modules]


_LOADED: set[str] = set()


def _decorator(registry: Registry, name: str) -> Callable[[_Registered], _Registered]:
    def register(thing: _Registered) -> _Registered:
        if not callable(thing) or (hasattr(thing, "sleep_") and not isinstance(thing, type)):
            raise TypeError(f"expected a function or a class to register as {name!r}, got {thing!r}")
        registry.add(name, thing)
        return thing

    return register


def _import(place: str) -> None:
    """Import a module by its name, or from its file."""
    if not place.endswith(".py"):
        importlib.import_module(place)
        return
    file = Path(place).expanduser().resolve()
    if file.stem in sys.modules:
        return
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[file.stem]
        raise


def _place(module: str) -> str:
    file = getattr(sys.modules[module], "__file__", None)
    return module if file is None or "." in module or Path(file).stem == "__init__" else str(Path(file).resolve())


def _module(thing: Any) -> str:
    return getattr(getattr(thing, "read", thing), "__module__", "")


def _is_ours(thing: Any) -> bool:
    return _module(thing).partition(".")[0] == "sleepconv"


def _same(known: Any, thing: Any) -> bool:
    """Whether both are the same thing, perhaps of a module that was imported twice."""
    names = [(_module(one), getattr(getattr(one, "read", one), "__qualname__", one)) for one in (known, thing)]
    return known is thing or names[0] == names[1]
