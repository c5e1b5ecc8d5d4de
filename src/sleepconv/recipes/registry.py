"""Recipes by name. The name of a recipe is that of its function; it is set here and nowhere else."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import wraps
from typing import Any

from sleepconv.training import Run

RECIPES: dict[str, Callable[[], Run]] = {}
"""Every recipe: a function without arguments that returns a complete run, with seed 0 and scale 1."""


def named(function: Callable[[], Run]) -> Callable[[], Run]:
    """Make a function a recipe: it is found by its name, and its run carries it.

    >>> @named
    ... def mine() -> Run:
    ...     return Run(name="any", dataset="cifar10", connectivity="local", learning_rate=1e-3)
    >>> RECIPES.pop("mine")().name
    'mine'
    """

    @wraps(function)
    def run() -> Run:
        return replace(function(), name=function.__name__)

    RECIPES[function.__name__] = run
    return run


def recipe(name: str, **changes: Any) -> Run:
    """The run of that name, with changes; a typo is answered with the nearest name.

    >>> recipe("cifar10_sleep_every_10", seed=3).learning_rate
    0.0005
    >>> recipe("cifar10_sleep_every_20")
    Traceback (most recent call last):
    ValueError: there is no recipe 'cifar10_sleep_every_20'; did you mean 'cifar10_sleep_every_10'?
    """
    if name not in RECIPES:
        near = nearest(name, list(RECIPES))
        hint = f"did you mean {near!r}?" if near else "`sleepconv list` shows them all"
        raise ValueError(f"there is no recipe {name!r}; {hint}")
    return RECIPES[name]().changed(**changes)


def varied(recipe_name: str, settings: Sequence[str] = (), *, name: str | None = None, **changes: Any) -> Run:
    """A recipe with settings as they are typed, FIELD=VALUE; since it is no longer that recipe, its name says so.

    >>> varied("cifar10_local", ["learning_rate=1e-4", "epochs=800"]).name
    'cifar10_local-learning_rate=1e-4-epochs=800'
    >>> varied("cifar10_sleep_every_1", ['sleep_options={"period": 1}']).name
    'cifar10_sleep_every_1-sleep_options=period=1'
    """
    run = recipe(recipe_name, **changes)
    for setting in settings:
        field, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"a setting is FIELD=VALUE, like learning_rate=1e-3, not {setting!r}")
        run = run.changed(**{field: _value(text)})
    return run.changed(name=name or "-".join([recipe_name, *map(_for_folder, settings)]))


def _for_folder(setting: str) -> str:
    """Without what some file systems refuse."""
    return re.sub(r"[^\w.,=+-]", "", setting.replace(":", "="))


def _value(text: str) -> Any:
    """A number, true, false, null or a JSON object as such; anything else as a word."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def nearest(name: str, known: list[str]) -> str | None:
    """The known name that is most like this one, whatever its case and dashes; none if nothing is near.

    >>> nearest("CIFAR10-local", ["cifar10_local", "cifar100_local"])
    'cifar10_local'
    """
    matches = get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.6)
    return matches[0] if matches else None


def about(name: str) -> str:
    """What a recipe's docstring says: table, row and the paper's number.

    >>> about("cifar10_local")
    'Table 1, LC: 80.9 % top-1. Rates: Table 11.'
    """
    return " ".join((RECIPES[name].__doc__ or "").split())
