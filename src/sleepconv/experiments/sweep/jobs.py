"""What a sweep has to run: the rows of a table, the points of a grid search, or single recipes, each with its seeds."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sleepconv.experiments.paper import RECIPES, SEARCHES, TABLES, datasets_of, recipe, table_rows
from sleepconv.experiments.paper.rows import TableName
from sleepconv.experiments.runs import Run, RunFolder, run_path
from sleepconv.names import did_you_mean

HYPERPARAMETER_TABLES = (10, 11, 12)


@dataclass(frozen=True)
class Job:
    """One run and the folder that it belongs in.

    >>> job = Job(recipe("cifar10_local", seed=2), Path("runs/cifar10_local/scale-1-seed-2"))
    >>> job.title, job.state
    ('cifar10_local scale 1 seed 2', 'new')
    """

    run: Run
    folder: Path

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.run.name} scale {self.run.scale:g} seed {self.run.seed}"

    @property
    def state(self) -> str:
        """done, begun, new or damaged; a folder that another recipe was begun in is not done."""
        folder = RunFolder(self.folder)
        try:
            if folder.recipe() != self.run or folder.summary() is None:
                return "begun"
            folder.check()
            folder.check_weights()
            return "done"
        except FileNotFoundError:
            return "new"
        except (ValueError, OSError):  # the worker that is to go on says what it is
            return "damaged"


def names_in(name: str, dataset: str | None = None) -> list[str]:
    """The recipes and grid searches that a name of a sweep stands for.

    >>> names_in("table4", "cifar10")[0]
    'cifar10_padding0_convolutional'
    >>> names_in("table10", "cifar10")[0]
    'cifar10_padding0_convolutional_grid'
    """
    tables: dict[str, TableName] = {t if isinstance(t, str) else f"table{t}": t for t in TABLES}
    known = [*tables, *RECIPES, *SEARCHES]
    if name not in known:
        hint = did_you_mean(name, known) or "; give table1, a recipe of `sleepconv list`, or RECIPE_grid"
        if name == "table3":
            hint = "; its networks are those of table2, and `sleepconv brain score` fits them to recordings"
        raise ValueError(f"there is nothing to sweep called {name!r}{hint}")
    if name not in tables:
        return [_on(name, dataset)]
    table = tables[name]
    recipes = [
        each
        for one in (datasets_of(table) if dataset is None else [dataset])
        for each in table_rows(table, one).values()
    ]
    return [f"{each}_grid" for each in recipes] if table in HYPERPARAMETER_TABLES else recipes


def _on(name: str, dataset: str | None) -> str:
    own = recipe(name.removesuffix("_grid")).dataset
    if dataset not in (None, own):
        raise ValueError(f"{name} is a run on {own}, not on {dataset}")
    return name


def jobs_for(names: Iterable[str], *, seeds: int, scale: float, runs: str | os.PathLike[str]) -> list[Job]:
    """Every run of these recipes and grid searches, seed by seed, so that whole tables are there early.

    >>> [job.title for job in jobs_for(["cifar10_local"], seeds=2, scale=0.1, runs="runs")]
    ['cifar10_local scale 0.1 seed 0', 'cifar10_local scale 0.1 seed 1']
    """
    if seeds < 1:
        raise ValueError(f"seeds={seeds} is 1 or more: that many runs of each recipe, from seed 0 on")
    points = [run for name in names for run in (SEARCHES[name]() if name in SEARCHES else [recipe(name)])]
    changed = [run.changed(seed=seed, scale=scale) for seed in range(seeds) for run in points]
    return [Job(run, run_path(runs, run).resolve()) for run in changed]
