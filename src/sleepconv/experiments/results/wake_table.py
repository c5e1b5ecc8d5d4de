"""The tables of learning without weight transport: a row for each rule, a column for each connectivity."""

from statistics import mean
from typing import Any

from sleepconv.experiments.paper import label, table_rows
from sleepconv.experiments.paper.numbers import PUBLISHED_ERRORS
from sleepconv.experiments.paper.rows import WAKE_COLUMNS, WAKE_RULES, WAKE_TABLES
from sleepconv.experiments.results.records import Records
from sleepconv.experiments.results.sheets import Sheet, number

CAPTIONS = {
    "wake": "ResNet8 on 16×16 images, padding 2",
    "wake-bartunov": "the CIFAR-10 network of Bartunov et al. (2018), padding 0",
}
_NOTES = {
    "wake": "ws(1) has shared gradients and ws(10) slow momentum, both start from shared weights, and their BatchNorm "
    "statistics were estimated again on training images for the evaluation; see How fast it learns.",
    "wake-bartunov": "Published: Bartunov et al. (2018), trained to the end with rates that they searched.",
}


def wake_rows(table: str, scale: float | None, records: Records) -> list[dict[str, Any]]:
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


def wake_sheet(table: str, dataset: str, scale: float | None, rows: list[dict[str, Any]]) -> Sheet:
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
    notes = ["Accuracy on the test set in percent, the mean over the seeds.", _NOTES[table]]
    return Sheet(f"Without weight transport, {CAPTIONS[table]}: {at}", columns, cells, notes)
