"""Every public name has a docstring with an example that the doctests run."""

import importlib
import inspect

import pytest

PACKAGES = [
    "functional",
    "nn",
    "sleep",
    "optim",
    "wake",
    "models",
    "kernels",
    "brain",
    "experiments.runs",
    "experiments.paper",
    "experiments.data",
    "experiments.training",
    "experiments.sweep",
    "experiments.report",
]
SIMULATION = [f"simulation.{name}" for name in ("theory", "circuit", "euler", "convergence", "robustness")]
MODULES = [*SIMULATION, "memory", "sleep.lightning", "testing", "experiments.shift_demo"]


def public_names():
    for place in PACKAGES + MODULES:
        module = importlib.import_module(f"sleepconv.{place}")
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{place}.{name}", value


@pytest.mark.parametrize(
    ("name", "value"), list(public_names()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_has_a_docstring_with_an_example(name, value):
    assert value.__doc__, name
    assert ">>> " in value.__doc__, f"{name} ({inspect.getsourcefile(value)}) has no example"
