"""All recipes at a glance: the paper's number, what a run would cost on this machine, and which have records."""

from statistics import median
from typing import Any

from sleepconv.paper.expected import ACCURACY, Accuracy
from sleepconv.paper.rendering import MISSING, Sheet, number
from sleepconv.recipes import RECIPES, about, recipe, table_rows
from sleepconv.recipes.cost import WORK, probe, readable, seconds_per_epoch
from sleepconv.recipes.records import Record, Records
from sleepconv.training import Run
from sleepconv.training.environment import describe
from sleepconv.training.parallel import Place

MACHINE = ("processor", "cores", "device")


def papers_numbers() -> dict[str, Accuracy]:
    """The paper's accuracy of each recipe that is a row of a table; beside a miniature that of its original.

    >>> papers_numbers()["cifar10_local"].top1
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


def overview(records: Records, dataset: str | None = None, speed: float | None = None) -> list[dict[str, Any]]:
    """What `sleepconv list` shows, for a script.

    Args:
        records: what has been run.
        dataset: only its recipes; by default all.
        speed: multiply-adds per second; by default measured.
    """
    runs = [run for run in map(recipe, RECIPES) if dataset in (None, run.dataset)]
    if not runs:
        known = sorted({recipe(name).dataset for name in RECIPES})
        raise ValueError(f"no recipe has the dataset {dataset!r}; there are {', '.join(known)}")
    speed = probe() if speed is None else speed
    numbers, here = papers_numbers(), describe(Place())
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
    """The overview as a table."""
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
        "time: an estimate for scale 1 on this machine, from a short probe (reading images and sleep not counted) or "
        "from records made here",
        "miniature: the paper's numbers are those of ResNet20 on 32×32 images, for context",
        "sleepconv train RECIPE --scale 0.1 runs one, sleepconv sweep RECIPE --seeds 5 several; "
        f"grid searches: sleepconv sweep RECIPE_grid, for instance {entries[0]['name']}_grid",
    ]
    return Sheet(f"{len(entries)} recipe{'s' * (len(entries) != 1)}", columns, rows, notes).text()


def _estimate(run: Run, records: list[Record], here: dict[str, Any], speed: float) -> dict[str, Any] | None:
    """From records of this machine if there are any; None for a dataset whose work is not known."""
    measured = [
        record.summary["seconds_per_epoch"]
        for record in records
        if all(record.environment.get(key) == here[key] for key in MACHINE)
    ]
    if not measured and run.dataset not in WORK:
        return None
    per_epoch = median(measured) if measured else seconds_per_epoch(run, speed)
    return {"seconds": per_epoch * run.epochs, "from": "records" if measured else "probe"}


def _seeds_by_scale(records: list[Record]) -> dict[str, list[int]]:
    scales = sorted({record.run.scale for record in records})
    return {f"{scale:g}": sorted(r.run.seed for r in records if r.run.scale == scale) for scale in scales}
