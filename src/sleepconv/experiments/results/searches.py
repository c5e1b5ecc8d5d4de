"""The outcome of a hyperparameter search: the rates that did best on the validation split."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from sleepconv.experiments.paper import SEARCHES
from sleepconv.experiments.runs import RunFolder, run_path
from sleepconv.experiments.runs.reports import is_number
from sleepconv.files import parse_json, write_atomically

_BEST = "best.json"
_MEASURES = ("learning_rate", "weight_decay", "top1")


@dataclass(frozen=True)
class Trial:
    """One point of a search: its rates and its mean accuracy on the validation split."""

    learning_rate: float
    weight_decay: float
    top1: float
    seeds: list[int]


@dataclass(frozen=True)
class Search:
    """A finished search at one scale; the trials are in the order of their accuracy, the best first.

    >>> trials = [Trial(1e-3, 1e-4, 80.9, [0]), Trial(5e-4, 1e-4, 79.0, [0])]
    >>> Search("cifar10_local_grid", 1.0, trials).best.learning_rate
    0.001
    """

    grid: str
    scale: float
    trials: list[Trial]

    @property
    def best(self) -> Trial:
        """The rates to use."""
        return self.trials[0]

    def write(self, runs: str | os.PathLike[str]) -> Path:
        """Write ``best.json`` atomically."""
        file = Path(runs) / self.grid / f"scale-{self.scale:g}" / _BEST
        write_atomically(file, json.dumps({"best": asdict(self.best), **asdict(self)}, indent=2) + "\n")
        return file


def conclude(grid: str, runs: str | os.PathLike[str], scale: float, seeds: Iterable[int]) -> Search:
    """Compare all points of a finished search.

    >>> conclude("cifar10_local_grid", "no/such/folder", 1.0, seeds=[0])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: ... is not finished; the search needs all its points
    """
    seeds = list(seeds)
    trials = []
    for run in SEARCHES[grid]():
        summaries = [_summary(run_path(runs, run.changed(scale=scale, seed=seed))) for seed in seeds]
        top1 = mean(summary["top1"] for summary in summaries)
        trials.append(Trial(run.learning_rate, run.weight_decay, top1, seeds))
    return Search(grid, scale, sorted(trials, key=lambda trial: -trial.top1))


def find_searches(paths: Iterable[str | os.PathLike[str]]) -> tuple[list[Search], list[str]]:
    """Return all finished searches in these folders and below them, and a line about each damaged record.

    >>> import tempfile
    >>> runs = tempfile.mkdtemp()
    >>> _ = Search("cifar10_local_grid", 1.0, [Trial(1e-3, 1e-4, 80.9, [0])]).write(runs)
    >>> searches, left_out = find_searches([runs])
    >>> [search.grid for search in searches]
    ['cifar10_local_grid']
    """
    searches, left_out = [], []
    for file in sorted(file for path in paths for file in Path(path).rglob(_BEST)):
        try:
            searches.append(_read(file))
        except (ValueError, OSError) as error:
            left_out.append(f"{file} left out: {error}")
    return searches, left_out


def _read(file: Path) -> Search:
    try:
        content = parse_json(file.read_bytes())
        trials = [Trial(**trial) for trial in content["trials"]]
        numbers = [content["scale"], *(getattr(t, name) for t in trials for name in _MEASURES)]
        if not trials or not all(map(is_number, numbers)):
            raise ValueError("a number is missing")
        return Search(content["grid"], content["scale"], trials)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a record of a search ({error!r}); sweep the search again to rewrite it") from error


def _summary(path: Path) -> dict[str, Any]:
    summary = RunFolder(path).summary()
    if summary is None:
        raise ValueError(f"{path} is not finished; the search needs all its points")
    return summary
