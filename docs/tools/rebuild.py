"""Tables and numbers in prose, made again from the records in results/: ``python docs/tools/rebuild.py``.

A block of a page begins with the command that prints it, hidden from readers, and ends with a mark::

    <!-- sleepconv table 1 --dataset cifar10 --runs results --format markdown -->
    ...
    <!-- end -->

A number in a sentence stands between the expression that it is the value of and a mark, but not at the beginning of a
line, where Markdown would end the paragraph. In expressions, the name of a recipe is the `Accuracy` of its runs at
scale 1, or at the scale that the expression ends with; `run` is that of any other run, and `fits` are scores of brain
fits. Numbers have one decimal place, whole ones none, and those from `score` two::

    it adds <!-- = cifar10_sleep_every_1 - cifar10_local at scale 0.1 -->5.6<!-- --> points
    to <!-- = round(cifar10_local) at scale 0.1 -->75<!-- --> %, and
    V4 is fitted by <!-- = score(fmean(fits("brain-miniature", "ws(1)", "V4"))) -->.26<!-- -->
"""

import re
import shlex
from collections.abc import Sequence
from contextlib import chdir, redirect_stdout
from fnmatch import fnmatchcase
from functools import cache
from io import StringIO
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from sleepconv.cli import main
from sleepconv.experiments.brain.scoreboard import cells_by_network, read_all_scores
from sleepconv.experiments.results.records import Records, read_records
from sleepconv.experiments.results.sheets import number
from sleepconv.experiments.runs import RunFolder

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/results.md",
    "docs/brain.md",
    "docs/ideas/learning-speed.md",
    "docs/ideas/without-backprop.md",
)
BLOCK = re.compile(r"(<!-- (sleepconv [^\n]*) -->\n).*?(<!-- end -->)", re.S)
VALUE = re.compile(r"(<!-- = ([^\n]+?)(?: at scale ([\d.]+))? -->)[−\d.]*(<!-- -->)")
MARKS = (re.compile(r"<!--\s*="), re.compile(r"<!--\s*-->"))
"""Where a value begins and ends, also if it is not written as it must be."""
FIRST_IN_LINE = re.compile(r"^(?:[\s>*+-]|\d+[.)])*<!-- =.*", re.M)


class Accuracy(float):
    """The accuracy of runs that differ in their seeds, in percent: the mean over them.

    It is that on the test set, or on the validation split if they were trained without it.

    Attributes:
        seeds: the accuracy of each run, by seed.
        training: the mean accuracy on the training images of the last epoch, while it learned.
        running: the mean accuracy with BatchNorm's running averages, also where its statistics were estimated again.
    """

    seeds: dict[int, float]
    training: float
    running: float
    _evaluations: list[dict[str, Any]]
    _epochs: list[dict[str, Any]]

    def __new__(cls, runs: Sequence[RunFolder]) -> "Accuracy":
        """Read the records of the runs."""
        for run in runs:
            run.check()
        evaluations = [run.metrics("evaluation") for run in runs]
        seeds = {run.recipe().seed: reports[-1]["top1"] for run, reports in zip(runs, evaluations, strict=True)}
        accuracy = super().__new__(cls, fmean(seeds.values()))
        accuracy.seeds = seeds
        accuracy._epochs = [epoch for run in runs for epoch in run.metrics("epoch")]
        accuracy.training = accuracy.training_in_epoch(runs[0].metrics("epoch")[-1]["epoch"])
        accuracy.running = fmean(reports[-1].get("running", reports[-1])["top1"] for reports in evaluations)
        accuracy._evaluations = list(chain(*evaluations))
        return accuracy

    def after_epoch(self, epoch: int) -> float:
        """Return the mean accuracy after an epoch."""
        return fmean(report["top1"] for report in self._evaluations if report["epoch"] == epoch)

    def training_in_epoch(self, epoch: int) -> float:
        """Return the mean accuracy on the training images of an epoch, while it learned."""
        return fmean(report["top1"] for report in self._epochs if report["epoch"] == epoch)

    def after(self, steps: int, *, first: int, last: int) -> float:
        """Return the mean over the evaluations, from epoch `first` to `last`, so many steps after the last sleep."""
        return fmean(
            report["top1"]
            for report in self._evaluations
            if report["steps_since_sleep"] == steps and first <= report["epoch"] <= last
        )


def accuracy(recipe: str, scale: float = 1.0) -> Accuracy:
    """Return the accuracy of the finished runs of a recipe."""
    runs = _records().of(recipe, scale)
    if not runs:
        raise ValueError(f"results/ has no finished run of a recipe {recipe!r} at scale {scale:g}")
    return Accuracy([run.folder for run in runs])


def run(folder: str) -> Accuracy:
    """Return the accuracy of one run, also of one that is not a recipe's, by its folder in results/."""
    found = RunFolder(ROOT / "results" / folder)
    if found.summary() is None:
        raise ValueError(f"results/ has no finished run {folder!r}")
    return Accuracy([found])


def fits(folder: str, row: str, where: str, value: str = "score", kind: str = "trained") -> list[float]:
    """Return how well each seed of the networks in a row fits a dataset or the datasets of a column of the table.

    Args:
        folder: of the records, in results/.
        row: as in the table; "ws*" stands for all rows that begin with ws.
        where: a column of the table or the name of a dataset.
        value: "score", or of a dataset also "r".
        kind: "trained" or "untrained".
    """
    return list(chain.from_iterable(_rows(folder, row, where, value, kind)))


def row_means(folder: str, row: str, where: str) -> list[float]:
    """Return the mean over the seeds of each row of trained networks; arguments as for `fits`."""
    return [fmean(seeds) for seeds in _rows(folder, row, where)]


def apart(folder: str, *where: str) -> float:
    """Return the largest difference between two seeds of one trained network, in any of these columns or datasets."""
    rows = [seeds for place in where for seeds in _rows(folder, "*", place) if len(seeds) > 1]
    if not rows:
        raise ValueError(f"results/{folder} has no two seeds of one network")
    return max(max(seeds) - min(seeds) for seeds in rows)


def _rows(folder: str, row: str, where: str, value: str = "score", kind: str = "trained") -> list[list[float]]:
    """Return the values of each row's seeds."""
    rows: dict[str, list[float]] = {}
    for record in read_all_scores([ROOT / "results" / folder]):
        if record["kind"] == kind and fnmatchcase(record["row"], row):
            rows.setdefault(record["row"], []).append(_fit(record, where, value))
    if not rows:
        raise ValueError(f"results/{folder} has no {kind} network {row!r}")
    return list(rows.values())


def _fit(record: dict[str, Any], where: str, value: str) -> float:
    found = {entry["dataset"]: entry.get(value) for entry in record["scores"]}
    if value == "score":
        (cells,) = cells_by_network([record]).values()
        found |= {column: cell.score for column, cell in cells.items()}
    if found.get(where) is None:
        raise ValueError(f"{record['row']!r} has no {value} in {where!r}, only in {', '.join(found)}")
    return found[where]


def score(value: float) -> str:
    """Return a score as sentences have it, with two decimal places and without the zero before them."""
    return re.sub(r"^(−?)0\.", r"\1.", number(value, ".2f"))


ARITHMETIC = {function.__name__: function for function in (fmean, max, min, round, score)}
READERS = {function.__name__: function for function in (apart, fits, row_means, run)}


class _Names(dict[str, Any]):
    """What the names in an expression stand for, and which of them read records."""

    def __init__(self, scale: float) -> None:
        super().__init__(ARITHMETIC)
        self._scale = scale
        self.recipes: set[str] = set()
        self.readers: set[str] = set()

    def __missing__(self, name: str) -> Any:
        if name in READERS:
            self.readers.add(name)
            return READERS[name]
        self.recipes.add(name)
        return accuracy(name, self._scale)


def rebuilt(page: str) -> str:
    """Return the text of a page with its numbers and blocks made again; a note stands only below its first table."""
    notes: set[str] = set()
    _check_marks(page)
    page = VALUE.sub(lambda value: f"{value[1]}{_value(value[2], value[3])}{value[4]}", page)
    return BLOCK.sub(lambda block: f"{block[1]}\n{_without(notes, _printed(block[2]))}\n\n{block[3]}", page)


def _check_marks(page: str) -> None:
    """Raise a ValueError if a value is not written as it must be, since it would never be made again."""
    if first := FIRST_IN_LINE.search(page):
        raise ValueError(f"a number must not be the first word of a line, got {first[0].strip()!r}")
    for mark in MARKS:
        if mark.search(left := VALUE.sub("", page)):
            line = next(line for line in left.splitlines() if mark.search(line))
            raise ValueError(f"a number must be written <!-- = expression -->1.0<!-- -->, got {line.strip()!r}")


@cache
def _records() -> Records:
    return read_records([ROOT / "results"])


def _value(expression: str, scale: str | None) -> str:
    try:
        names = _Names(float(scale or 1))
        value = eval(expression, {"__builtins__": {}}, names)
        if not names.recipes | names.readers:
            raise ValueError("it reads no record")
        if scale and not names.recipes:
            raise ValueError("it names no recipe, so it has no scale")
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError(f"it must be a number, got {value!r}")
        if names.readers - {"run"} and not isinstance(value, str):
            raise TypeError(f"a brain fit must be written with score(...), got {value!r}")
    except Exception as error:
        raise ValueError(f"the number {expression!r} cannot be computed: {error}") from error
    return value if isinstance(value, str) else number(value, ".0f" if isinstance(value, int) else ".1f")


def _without(notes: set[str], printed: str) -> str:
    """Leave out the notes that the page already has, and remember the others."""
    paragraphs = [part for part in printed.split("\n\n") if part not in notes]
    notes.update(part for part in paragraphs if not part.startswith(("|", "**")))
    return "\n\n".join(paragraphs)


def _printed(command: str) -> str:
    said = StringIO()
    with chdir(ROOT), redirect_stdout(said):
        code = main(shlex.split(command)[1:])
    if code != 0:
        raise RuntimeError(f"{command} ended with exit code {code}")
    return said.getvalue().strip()


if __name__ == "__main__":
    for name in PAGES:
        path = ROOT / name
        path.write_text(rebuilt(path.read_text()))
        print(name)
