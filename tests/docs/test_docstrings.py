"""Every public name has a docstring with an example that the doctests run."""

import importlib
import inspect

import pytest

PACKAGES = ["functional", "nn", "sleep", "models", "data", "training", "recipes", "sweep", "kernels", "brain", "report"]


def public_names():
    for package in PACKAGES:
        module = importlib.import_module(f"sleepconv.{package}")
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{package}.{name}", value


@pytest.mark.parametrize(
    ("name", "value"), list(public_names()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_has_a_docstring_with_an_example(name, value):
    assert value.__doc__, name
    assert ">>> " in value.__doc__, f"{name} ({inspect.getsourcefile(value)}) has no example"
