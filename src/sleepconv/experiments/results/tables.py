"""How a table is made: `blocks` reads records and puts our numbers beside the paper's, `rendered` formats them.

The paper's numbers come from `sleepconv.experiments.paper.numbers`, the recipe of each row from
`sleepconv.experiments.paper.rows`, ours from the run folders that `read_records` finds. Nothing is trained here, and
runs of different scales are never mixed.
"""

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import mean
from typing import Any

from sleepconv.experiments.paper import datasets_of, label, table_rows
from sleepconv.experiments.paper.numbers import ACCURACY, PUBLISHED_ERRORS, RATES, SEEDS, SPREAD, Accuracy
from sleepconv.experiments.paper.rows import (
    OWN_TABLES,
    PADDING,
    REGISTERED_TABLES,
    WAKE_COLUMNS,
    WAKE_RULES,
    WAKE_TABLES,
    TableName,
)
from sleepconv.experiments.results.records import Record, Records, read_records
from sleepconv.experiments.results.searches import Search, find_searches
from sleepconv.experiments.results.sheets import Sheet, number

_FORMATS = ("text", "markdown", "latex", "csv")
Paths = Sequence[str | os.PathLike[str]]
# The table of the means that belongs to a table of max − min, and the other way round.
_MEANS: dict[TableName, TableName] = {7: 4, 8: 1, 9: 6}
_SPREADS: dict[TableName, TableName] = {4: 7, 1: 8, 5: 8, 6: 9}
_ROWS = (
    "conv: convolutional; LC: locally connected; n reps: n translations of each image in a batch; ws(n): a sleep every "
    "n steps. Diff: to conv."
)
CAPTIONS: dict[TableName, str] = {
    1: "padding 4",
    2: "half-width ResNet18",
    4: "padding 0",
    5: "padding 4",
    6: "padding 8",
    7: "padding 0",
    8: "padding 4",
    9: "padding 8",
    13: "half-width ResNet18, with and without a convolutional first layer",
    "learning-speed": "ResNet20 on cifar10, padding 4",
    "miniature": "ResNet8 on 16×16 images, padding 2",
    "miniature-padding0": "ResNet8 on 16×16 images, padding 0",
    "wake": "ResNet8 on 16×16 images, padding 2",
    "wake-bartunov": "the CIFAR-10 network of Bartunov et al. (2018), padding 0",
}
_WAKE_NOTES = {
    "wake": "ws(1) has shared gradients and ws(10) slow momentum, both start from shared weights, and their BatchNorm "
    "statistics were estimated again on training images for the evaluation; see How fast it learns.",
    "wake-bartunov": "Published: Bartunov et al. (2018), trained to the end with rates that they searched.",
}
_CONTEXT = "The paper's numbers are those of ResNet20 on 32×32 images: context, not targets."


@dataclass(frozen=True)
class Block:
    """A table's part on one dataset, at one scale (None: only the paper's numbers)."""

    table: TableName
    dataset: str
    scale: float | None
    rows: list[dict[str, Any]]

    def sheet(self) -> Sheet:
        """Return the part as it is shown."""
        if isinstance(self.table, str) and self.table in WAKE_TABLES:
            return _wake_sheet(self.table, self.scale, self.rows)
        drawn = _rate_sheet if self.table in RATES else spread_sheet if self.table in SPREAD else _accuracy_sheet
        return drawn(self.table, self.dataset, self.scale, self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Return the part for a script."""
        return {"table": self.table, "dataset": self.dataset, "scale": self.scale, "rows": self.rows}


def blocks(
    table: TableName,
    paths: Paths,
    *,
    dataset: str | None = None,
    scale: float | None = None,
    trained: bool = False,
) -> tuple[list[Block], list[str]]:
    """Fill a table of the paper with the records in some folders.

    Args:
        table: its number in the paper, or the name of one of ours.
        paths: folders of runs.
        dataset: only this one; by default all that the table has.
        scale: only this one; by default every scale that has records, each in its own block.
        trained: leave out rows without records.

    Returns:
        one block for each dataset and scale, and a line about each record that was left out.

    >>> [block.scale for block in blocks(1, [], dataset="cifar10")[0]]
    [None]
    """
    check_scale(scale)
    found, left_out = [], []
    for each in datasets_of(table) if dataset is None else [dataset]:
        made, without = (_rate_blocks if table in RATES else _result_blocks)(table, each, paths, scale)
        found += [replace(block, rows=[row for row in block.rows if row["seeds"] or not trained]) for block in made]
        left_out += without
    found = [block for block in found if block.rows] or found  # without any record, the headings say so
    return found, list(dict.fromkeys(left_out))  # one that cannot be read may belong to any of the datasets


def rendered(made: Iterable[Block], form: str) -> str:
    """Return blocks in one of the `_FORMATS`."""
    if form not in _FORMATS:
        raise ValueError(f"the format must be one of {', '.join(_FORMATS)}, got {form!r}")
    if form == "csv":
        return _csv([block.as_dict() for block in made])
    return "\n\n".join(getattr(block.sheet(), form)() for block in made) + "\n"


def _result_blocks(table: TableName, dataset: str, paths: Paths, scale: float | None) -> tuple[list[Block], list[str]]:
    names = table_rows(table, dataset).values()
    records = read_records(paths, names)
    scales: list[float | None] = [scale] if scale is not None else [*records.scales(names)] or [None]
    return [Block(table, dataset, s, _accuracy_rows(table, dataset, s, records)) for s in scales], records.left_out


def _rate_blocks(table: TableName, dataset: str, paths: Paths, scale: float | None) -> tuple[list[Block], list[str]]:
    searches, left_out = find_searches(paths)
    scales: list[float | None] = [scale] if scale is not None else [*_rate_scales(table, dataset, searches)] or [None]
    return [Block(table, dataset, s, rate_rows(table, dataset, s, searches)) for s in scales], left_out


def _accuracy_rows(table: TableName, dataset: str, scale: float | None, records: Records) -> list[dict[str, Any]]:
    """Return our accuracies and the paper's, row by row; beside a miniature those of its original."""
    if isinstance(table, str) and table in WAKE_TABLES:
        return _wake_rows(table, scale, records)
    expected, spreads = _of_paper(table, dataset)
    recipes = table_rows(table, dataset)
    ours = {row: records.of(name, scale) if scale is not None else [] for row, name in recipes.items()}
    conv = "convolutional" if table not in REGISTERED_TABLES else next(iter(recipes))
    made = []
    for row, name in recipes.items():
        entry: dict[str, Any] = {"row": label(row), "recipe": name, "seeds": [r.run.seed for r in ours[row]]}
        entry["reestimated"] = any(record.run.statistics == "reestimated" for record in ours[row])
        for index, measure in enumerate(("top1", "top5")):
            reference = _mean(ours[conv], measure) if row != conv else None
            spread = spreads.get(row, [None])
            entry |= {
                measure: _mean(ours[row], measure),
                f"{measure}_paper": getattr(expected.get(row), measure, None),
                f"{measure}_difference": _difference(_mean(ours[row], measure), reference),
                f"{measure}_difference_paper": getattr(expected.get(row), f"{measure}_difference", None),
                f"{measure}_spread": _spread(ours[row], measure),
                f"{measure}_spread_paper": spread[index] if index < len(spread) else None,
            }
        made.append(entry)
    return made


def _of_paper(table: TableName, dataset: str) -> tuple[dict[str, Accuracy], dict[str, Any]]:
    """Return the paper's accuracies and max − min, row by row; a registered table has none."""
    if table in REGISTERED_TABLES:
        return {}, {}
    original: TableName = OWN_TABLES[table].original if isinstance(table, str) else table
    in_paper = "cifar10" if isinstance(table, str) else dataset
    spreads = SPREAD.get(_SPREADS.get(original, original), {}).get(in_paper, {})
    return ACCURACY[_MEANS.get(original, original)][in_paper], spreads


def _accuracy_sheet(table: TableName, dataset: str, scale: float | None, rows: list[dict[str, Any]]) -> Sheet:
    """Show accuracy, Diff to conv and max − min, each with the paper's beside it."""
    columns, keys = ["", "seeds"], []
    for name, measure in _measures(dataset):
        for title, part in ((name, ""), ("Diff", "_difference"), ("max − min", "_spread")):
            columns += [title] if table in REGISTERED_TABLES else [title, "paper"]
            keys += [f"{measure}{part}"] + ([] if table in REGISTERED_TABLES else [f"{measure}{part}_paper"])
    return _sheet(table, dataset, scale, columns, keys, rows)


def spread_sheet(table: TableName, dataset: str, scale: float | None, rows: list[dict[str, Any]]) -> Sheet:
    """Show max − min over seeds, with the paper's beside it."""
    columns, keys = ["", "seeds"], []
    for name, measure in _measures(dataset):
        columns += [f"{name} max − min", "paper"]
        keys += [f"{measure}_spread", f"{measure}_spread_paper"]
    return _sheet(table, dataset, scale, columns, keys, rows)


def _sheet(
    table: TableName, dataset: str, scale: float | None, columns: list[str], keys: list[str], rows: list[dict[str, Any]]
) -> Sheet:
    registered = REGISTERED_TABLES.get(table)
    only = "" if registered else ", only the paper's numbers"
    at = f"no records{only}" if scale is None else f"scale {scale:g}"
    cells = [
        [
            row["row"] + " *" * row["reestimated"],
            number(len(row["seeds"]) or None, "d"),
            *[number(row[key]) for key in keys],
        ]
        for row in rows
    ]
    notes = _notes(table, at) if scale else []
    if any(row["reestimated"] for row in rows):
        notes.append(
            "With *: BatchNorm statistics were estimated again on training images; the others: running averages."
        )
    if registered:
        title = f"{table}, {dataset}{', ' * bool(registered.caption)}{registered.caption}: {at}"
        return Sheet(title[0].upper() + title[1:], columns, cells, notes)
    if isinstance(table, str):
        if dataset != "cifar10":
            notes.append(_CONTEXT)
        return Sheet(f"{table.replace('-', ' ').capitalize()}, {CAPTIONS[table]}: {at}", columns, cells, notes)
    return Sheet(f"Table {table}, {dataset}, {CAPTIONS[table]}: {at}", columns, cells, notes)


def _notes(table: TableName, at: str) -> list[str]:
    if table in REGISTERED_TABLES:
        return [f"Accuracy in percent: mean over the seeds, at {at}. Diff: to the first row."]
    seeds = SEEDS[OWN_TABLES[table].original if isinstance(table, str) else table]
    runs = f"{seeds} run{'s' * (seeds > 1)}"
    return [f"Accuracy in percent. Paper: {runs} at scale 1. Ours: mean over the seeds, at {at}.", _ROWS]


def _measures(dataset: str) -> list[tuple[str, str]]:
    """Return top-1, and top-5 for the datasets for which the paper has it."""
    return [("top-1", "top1")] + (
        [("top-5", "top5")] if not dataset.startswith("cifar10-") and dataset != "cifar10" else []
    )


def _mean(records: list[Record], measure: str) -> float | None:
    return mean(record.summary[measure] for record in records) if records else None


def _difference(value: float | None, reference: float | None) -> float | None:
    return None if value is None or reference is None else value - reference


def _spread(records: list[Record], measure: str) -> float | None:
    """Return max − min over at least two seeds."""
    values = [record.summary[measure] for record in records]
    return max(values) - min(values) if len(values) > 1 else None


def _rate_scales(table: TableName, dataset: str, searches: Sequence[Search]) -> list[float]:
    """Return the scales at which a rate of this table was searched."""
    grids = {f"{name}_grid" for name in table_rows(table, dataset).values()}
    return sorted({search.scale for search in searches if search.grid in grids})


def rate_rows(table: TableName, dataset: str, scale: float | None, searches: Sequence[Search]) -> list[dict[str, Any]]:
    """Return our rates and the paper's, row by row; of two searches of one recipe the first counts."""
    found: dict[str, Search] = {}
    for search in searches:
        if search.scale == scale:
            found.setdefault(search.grid, search)
    made = []
    for row, name in table_rows(table, dataset).items():
        best = found[f"{name}_grid"].best if f"{name}_grid" in found else None
        made.append(
            {
                "row": label(row),
                "recipe": name,
                "seeds": best.seeds if best else [],
                "learning_rate": best.learning_rate if best else None,
                "learning_rate_paper": RATES[table][dataset][row].learning_rate,
                "weight_decay": best.weight_decay if best else None,
                "weight_decay_paper": RATES[table][dataset][row].weight_decay,
                "top1": best.top1 if best else None,
            }
        )
    return made


def _rate_sheet(table: TableName, dataset: str, scale: float | None, rows: list[dict[str, Any]]) -> Sheet:
    """Show learning rate and weight decay, with the paper's beside them."""
    at = "no searches, only the paper's numbers" if scale is None else f"scale {scale:g}"
    keys = ("learning_rate", "learning_rate_paper", "weight_decay", "weight_decay_paper")
    cells = [
        [
            row["row"],
            number(len(row["seeds"]) or None, "d"),
            *[number(row[key], "g") for key in keys],
            number(row["top1"]),
        ]
        for row in rows
    ]
    columns = ["", "seeds", "learning rate", "paper", "weight decay", "paper", "validation top-1"]
    notes = ["Ours: the best of our search. The recipes use the paper's."] if scale else []
    return Sheet(f"Table {table}, {dataset}, hyperparameters for padding {PADDING[table]}: {at}", columns, cells, notes)


def _csv(made: list[dict[str, Any]]) -> str:
    """Return one line per dataset, scale and row; what is missing is empty."""
    lines = [
        {**{key: block[key] for key in ("table", "dataset", "scale")}, **row} for block in made for row in block["rows"]
    ]
    if not lines:
        return ""
    content = io.StringIO()
    writer = csv.DictWriter(content, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows([{**line, "seeds": " ".join(map(str, line["seeds"]))} for line in lines])
    return content.getvalue()


def check_scale(scale: float | None) -> None:
    """Raise a ValueError unless this can be a scale."""
    if scale is not None and not 0 < scale < inf:
        raise ValueError(f"`scale` must be finite and above 0, got {scale}")


def _wake_rows(table: str, scale: float | None, records: Records) -> list[dict[str, Any]]:
    """Return the accuracy of each rule by connectivity, the mean over seeds, and what was published."""
    recipes = table_rows(table, WAKE_TABLES[table].dataset)
    made = []
    for rule in ("backprop", *WAKE_TABLES[table].rules):
        entry: dict[str, Any] = {"row": WAKE_RULES[rule], "seeds": []}
        for column in WAKE_COLUMNS:
            row = f"{rule}_{column}"
            ours = records.of(recipes[row], scale) if scale is not None else []
            entry[label(column)] = mean(record.summary["top1"] for record in ours) if ours else None
            entry["seeds"] = sorted({*entry["seeds"], *(record.run.seed for record in ours)})
            published = table == "wake-bartunov" and row in PUBLISHED_ERRORS
            entry[f"{label(column)} published"] = 100 - PUBLISHED_ERRORS[row] if published else None
        made.append(entry)
    return made


def _wake_sheet(table: str, scale: float | None, rows: list[dict[str, Any]]) -> Sheet:
    """Show the accuracies, with the published ones beside them."""
    columns, keys = ["", "seeds"], []
    for name in map(label, WAKE_COLUMNS):
        columns.append(name)
        keys.append(name)
        if any(row[f"{name} published"] is not None for row in rows):
            columns.append("published")
            keys.append(f"{name} published")
    cells = [[row["row"], number(len(row["seeds"]) or None, "d"), *[number(row[key]) for key in keys]] for row in rows]
    at = "no records" if scale is None else f"scale {scale:g}"
    notes = ["Accuracy on the test set in percent, the mean over the seeds.", _WAKE_NOTES[table]]
    return Sheet(f"Without weight transport, {CAPTIONS[table]}: {at}", columns, cells, notes)
