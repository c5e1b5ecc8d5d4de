"""Tables and numbers in prose, made again from the records in results/: ``python docs/tools/rebuild.py``.

A block of a page begins with the command that prints it, hidden from readers, and ends with a mark::

    <!-- sleepconv table 1 --dataset cifar10 --runs results --format markdown -->
    ...
    <!-- end -->

A number in a sentence stands between the expression that it is the value of and a mark. In expressions, the name of a
recipe is the `Accuracy` of its runs; numbers have one decimal place, whole ones none::

    sleep adds <!-- = miniature_sleep_every_1 - miniature_local -->1.4<!-- --> points to
    <!-- = round(miniature_local) -->76<!-- --> %
"""

import re
import shlex
from contextlib import chdir, redirect_stdout
from functools import cache
from io import StringIO
from itertools import chain
from pathlib import Path
from statistics import fmean

from sleepconv.cli import main
from sleepconv.experiments.results.records import Records, read_records
from sleepconv.experiments.results.sheets import number

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/results.md",
    "docs/brain.md",
    "docs/ideas/learning-speed.md",
    "docs/ideas/without-backprop.md",
)
BLOCK = re.compile(r"(<!-- (sleepconv [^\n]*) -->\n).*?(<!-- end -->)", re.S)
VALUE = re.compile(r"(<!-- = (.+?) -->)[^<]*(<!-- -->)")


class Accuracy(float):
    """The accuracy of a recipe on the test set, in percent: the mean over seeds, at the largest scale that was run.

    Attributes:
        seeds: the accuracy of each run, by seed.
        training: the mean accuracy on the training images of the last epoch, while it learned.
        running: the mean accuracy with BatchNorm's running averages, also where its statistics were estimated again.
    """

    seeds: list[float]
    training: float
    running: float

    def __new__(cls, recipe: str) -> "Accuracy":
        """Read the runs of a recipe."""
        records = _records()
        if not (scales := records.scales([recipe])):
            raise ValueError(f"results/ has no finished run of a recipe {recipe!r}")
        runs = records.of(recipe, scales[-1])
        accuracy = super().__new__(cls, fmean(run.summary["top1"] for run in runs))
        accuracy.seeds = [run.summary["top1"] for run in runs]
        accuracy.training = fmean(run.folder.metrics("epoch")[-1]["top1"] for run in runs)
        evaluations = [run.folder.metrics("evaluation") for run in runs]
        accuracy.running = fmean(reports[-1].get("running", reports[-1])["top1"] for reports in evaluations)
        accuracy._evaluations = list(chain(*evaluations))
        return accuracy

    def after(self, steps: int, *, first: int, last: int) -> float:
        """Return the mean over the evaluations, from epoch `first` to `last`, so many steps after the last sleep."""
        return fmean(
            report["top1"]
            for report in self._evaluations
            if report["steps_since_sleep"] == steps and first <= report["epoch"] <= last
        )


class _Names(dict[str, object]):
    """What the names in an expression stand for."""

    def __missing__(self, recipe: str) -> Accuracy:
        return Accuracy(recipe)


def rebuilt(page: str) -> str:
    """Return the text of a page with its numbers and blocks made again; a note stands only below its first table."""
    notes: set[str] = set()
    page = VALUE.sub(lambda value: f"{value[1]}{_value(value[2])}{value[3]}", page)
    return BLOCK.sub(lambda block: f"{block[1]}\n{_without(notes, _printed(block[2]))}\n\n{block[3]}", page)


@cache
def _records() -> Records:
    return read_records([ROOT / "results"])


def _value(expression: str) -> str:
    value = eval(expression, {}, _Names(round=round))
    return str(value) if isinstance(value, int) else number(value)


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
