"""All recipes at a glance: the paper's number, what a run would cost on this machine, and which have records."""

from statistics import median
from typing import Any

from sleepconv.experiments.paper import RECIPES, about, recipe, table_rows
from sleepconv.experiments.paper.numbers import ACCURACY, Accuracy
from sleepconv.experiments.results.records import Record, Records
from sleepconv.experiments.results.sheets import MISSING, Sheet, number
from sleepconv.experiments.runs import Run
from sleepconv.experiments.runs.machine import machine
from sleepconv.names import did_you_mean

# Multiply-adds of one image's forward pass, training images and test images.
WORK = {
    "cifar10": (40.8e6, 50_000, 10_000),
    "cifar10-16x16": (3.1e6, 50_000, 10_000),
    "cifar100": (40.8e6, 50_000, 10_000),
    "tiny-imagenet": (91.8e6, 100_000, 10_000),
    "imagenet": (483.1e6, 1_281_167, 50_000),
}
# A backward pass costs two forward passes; a locally connected step costs what benchmarks/README.md has at most.
FORWARD_AND_BACKWARD = 3
_LOCAL_OVERHEAD = 1.2


def seconds_per_epoch(run: Run, speed: float) -> float:
    """Estimate the time of an epoch and its evaluation at so many multiply-adds per second, without reading images.

    >>> from sleepconv.experiments.paper import recipe
    >>> round(seconds_per_epoch(recipe("cifar10_convolutional"), speed=100e9))
    65
    """
    per_image, train, test = WORK[run.dataset]
    images = FORWARD_AND_BACKWARD * train * run.repetitions + test
    overhead = 1.0 if run.connectivity == "convolutional" else _LOCAL_OVERHEAD
    return images * per_image * overhead / speed


def readable(seconds: float) -> str:
    """Format a duration in the unit that suits it.

    >>> readable(42), readable(600), readable(7200), readable(1e6)
    ('42 s', '10 min', '2.0 h', '11.6 d')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} d"


def _papers_numbers() -> dict[str, Accuracy]:
    """Return the paper's accuracy of each recipe that is a row of a table, or whose original is.

    >>> _papers_numbers()["cifar10_local"].top1
    80.9
    """
    numbers = {
        name: ACCURACY[table][dataset][row]
        for table in (1, 4, 6, 13)
        for dataset in ACCURACY[table]
        for row, name in table_rows(table, dataset).items()
    }
    originals = {name: name.replace("miniature", "cifar10") for name in RECIPES if name.startswith("miniature")}
    return numbers | {name: numbers[original] for name, original in originals.items() if original in numbers}


def recipe_rows(records: Records, dataset: str | None = None, speed: float | None = None) -> list[dict[str, Any]]:
    """Return what `sleepconv list` shows, for a script.

    Args:
        records: what has been run.
        dataset: only its recipes; by default all.
        speed: multiply-adds per second, to estimate the time of recipes without records; see ``training.probe``.
    """
    runs = [run for run in map(recipe, RECIPES) if dataset in (None, run.dataset)]
    if not runs:
        known = sorted({run.dataset for run in RECIPES.values()})
        raise ValueError(f"no recipe has the dataset {dataset!r}{did_you_mean(str(dataset), known)}")
    numbers, here = _papers_numbers(), machine()
    entries = []
    for run in runs:
        paper = numbers.get(run.name)
        mine = [record for record in records.found if record.run.name == run.name]
        entries.append(
            {
                "name": run.name,
                "about": about(run.name),
                "dataset": run.dataset,
                "epochs": run.epochs,
                "paper": {"top1": paper.top1, "top5": paper.top5} if paper else None,
                "estimate": _estimate(run, mine, here, speed),
                "records": _seeds_by_scale(mine),
            }
        )
    return entries


def as_text(entries: list[dict[str, Any]]) -> str:
    """Return the overview as a table."""
    rows = [
        [
            entry["name"],
            *[number((entry["paper"] or {}).get(key)) for key in ("top1", "top5")],
            MISSING if entry["estimate"] is None else readable(entry["estimate"]["seconds"]),
            "; ".join(f"scale {s}: seed {', '.join(map(str, seeds))}" for s, seeds in entry["records"].items())
            or MISSING,
        ]
        for entry in entries
    ]
    columns = ["recipe", "paper's top-1", "top-5", "time", "records"]
    notes = [
        "time: an estimate for scale 1 on this machine, from records made here or, with --probe, from a short "
        "measurement (reading images and sleep not counted)",
        "miniature: the paper's numbers are those of ResNet20 on 32×32 images, for context",
        "sleepconv train RECIPE --scale 0.1 runs one, sleepconv sweep RECIPE --seeds 5 several; "
        "sleepconv sweep RECIPE_grid searches the rates of a recipe of the paper, for instance cifar10_local_grid",
    ]
    return Sheet(f"{len(entries)} recipe{'s' * (len(entries) != 1)}", columns, rows, notes).text()


def _estimate(run: Run, records: list[Record], here: dict[str, Any], speed: float | None) -> dict[str, Any] | None:
    """Estimate from records of this machine if there are any, or from its speed; None if neither is known."""
    measured = [
        record.summary["seconds_per_epoch"]
        for record in records
        if all(record.environment.get(key) == value for key, value in here.items())
    ]
    if measured:
        return {"seconds": median(measured) * run.epochs, "from": "records"}
    if speed is None or run.dataset not in WORK:
        return None
    return {"seconds": seconds_per_epoch(run, speed) * run.epochs, "from": "probe"}


def _seeds_by_scale(records: list[Record]) -> dict[str, list[int]]:
    scales = sorted({record.run.scale for record in records})
    return {f"{scale:g}": sorted(r.run.seed for r in records if r.run.scale == scale) for scale in scales}
