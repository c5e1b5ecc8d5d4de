"""The finished runs of the recipes among the folders on disk."""

import os
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sleepconv.experiments.paper.recipes import RECIPES, recipe
from sleepconv.experiments.runs import Run, RunFolder, find_runs

# Fields in which a run may differ from its recipe and still be that row of the table.
FREE = ("seed", "scale", "precision", "snr_every")
DEFAULT_RUNS = ("results", "runs")


@dataclass(frozen=True)
class Record:
    """A finished run of a recipe."""

    run: Run
    summary: dict[str, Any]
    environment: dict[str, Any]
    folder: RunFolder


@dataclass(frozen=True)
class Records:
    """The finished runs that count, and a line about each that does not."""

    found: list[Record]
    left_out: list[str]

    def of(self, name: str, scale: float) -> list[Record]:
        """Return the runs of one recipe at one scale, by seed."""
        mine = [record for record in self.found if (record.run.name, record.run.scale) == (name, scale)]
        return sorted(mine, key=lambda record: record.run.seed)

    def scales(self, names: Collection[str]) -> list[float]:
        """Return the scales at which any of these recipes was run."""
        return sorted({record.run.scale for record in self.found if record.run.name in names})


def read_records(paths: Iterable[str | os.PathLike[str]], names: Collection[str] | None = None) -> Records:
    """Read the finished runs of these recipes (by default of all) in these folders and below them.

    A run that searched hyperparameters, that differs from its recipe, that is not finished or that repeats a seed does
    not count.
    """
    wanted = RECIPES if names is None else names
    found: dict[tuple[str, float, int], Record] = {}
    left_out = []
    # One path after the other, so that the first one named wins where a seed is there twice.
    for folder in (folder for path in paths for folder in find_runs(path)):
        try:
            run = folder.recipe()
            if run.name not in wanted:
                continue
            record = _checked(run, folder)
            first = found.setdefault((run.name, run.scale, run.seed), record)
            if first.folder.path.resolve() != folder.path.resolve():
                raise ValueError(f"{first.folder.path} has the same recipe, scale and seed")
        except (ValueError, OSError) as error:
            left_out.append(f"{folder.path} left out: {error}")
    return Records(list(found.values()), left_out)


def changes(run: Run) -> dict[str, tuple[Any, Any]]:
    """Return where a run differs from the recipe of its name and may not: its value, and the recipe's.

    >>> changes(recipe("cifar10_local", seed=3, learning_rate=0.5))
    {'learning_rate': (0.5, 0.001)}
    """
    have, expected = asdict(run), asdict(recipe(run.name))
    return {key: (have[key], expected[key]) for key in have if key not in FREE and have[key] != expected[key]}


def _checked(run: Run, folder: RunFolder) -> Record:
    if changed := changes(run):
        differences = [f"{key}={have!r}, not {expected!r}" for key, (have, expected) in changed.items()]
        raise ValueError(f"it is not {run.name}: {'; '.join(differences)}")
    summary = folder.summary()
    if summary is None:
        raise ValueError("it is not finished")
    folder.check()
    return Record(run, summary, folder.environment() or {}, folder)
