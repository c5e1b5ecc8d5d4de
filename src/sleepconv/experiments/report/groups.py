"""Runs that differ only in the seed, shown together with one name and colour."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from sleepconv.experiments.results.sheets import MISSING
from sleepconv.experiments.runs import Run, RunFolder

_PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00", "#5d3a9b", "#444444"]


@dataclass(frozen=True)
class Group:
    """One recipe at one scale, with a folder per seed.

    Attributes:
        label: its name, with the fields that distinguish it from others of the same name.
        colour: in all pictures.
        run: the recipe; its seed is that of the first folder.
        folders: one per seed.
    """

    label: str
    colour: str
    run: Run
    folders: tuple[RunFolder, ...]


def group(folders: Sequence[RunFolder]) -> list[Group]:
    """Group the runs that differ only in the seed, in the given order."""
    members: dict[str, list[RunFolder]] = {}
    for folder in folders:
        members.setdefault(folder.recipe().changed(seed=0).as_json(), []).append(folder)
    runs = [found[0].recipe() for found in members.values()]
    return [
        Group(_label(run, runs), _PALETTE[place % len(_PALETTE)], run, tuple(found))
        for place, (run, found) in enumerate(zip(runs, members.values(), strict=True))
    ]


def varying_fields(runs: Sequence[Run]) -> list[str]:
    """Name the fields other than the seed in which these runs differ.

    >>> run = Run(name="mine", dataset="digits", connectivity="local", learning_rate=1e-3)
    >>> varying_fields([run, run.changed(seed=2, scale=0.5)])
    ['scale']
    """
    names = [f.name for f in fields(Run) if f.name != "seed"]
    return [name for name in names if any(getattr(run, name) != getattr(runs[0], name) for run in runs[1:])]


def as_text(value: Any) -> str:
    """Format a field's value; None is a dash.

    >>> as_text(None), as_text(5e-4), as_text({"decay": 0.01})
    ('–', '0.0005', 'decay=0.01')
    """
    if value is None:
        return MISSING
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{name}={as_text(part)}" for name, part in value.items()) or MISSING
    return str(value)


def _label(run: Run, runs: Sequence[Run]) -> str:
    namesakes = [other for other in runs if other.name == run.name]
    differences = [f"{name}={as_text(getattr(run, name))}" for name in varying_fields(namesakes)]
    return f"{run.name} ({', '.join(differences)})" if differences else run.name
