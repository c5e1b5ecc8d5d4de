"""Tables 1, 2, 4 to 6 and 13 (mean accuracy) and 7 to 9 (max − min over seeds)."""

from statistics import mean
from typing import Any

from sleepconv.paper.expected import ACCURACY, SEEDS, SPREAD
from sleepconv.paper.rendering import Sheet, number
from sleepconv.recipes import label, table_rows
from sleepconv.recipes.records import Record, Records
from sleepconv.recipes.rows import OWN_TABLES, TableName

# The table of the means that belongs to a table of max − min, and the other way round.
MEANS: dict[TableName, TableName] = {7: 4, 8: 1, 9: 6}
SPREADS: dict[TableName, TableName] = {4: 7, 1: 8, 5: 8, 6: 9}
ROWS = (
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
}
CONTEXT = "The paper's numbers are those of ResNet20 on 32×32 images: context, not targets."


def accuracy_rows(table: TableName, dataset: str, scale: float | None, records: Records) -> list[dict[str, Any]]:
    """Ours and the paper's numbers, row by row; beside a miniature those of its original."""
    of_paper: TableName = OWN_TABLES[table].original if isinstance(table, str) else table
    in_paper = "cifar10" if isinstance(table, str) else dataset
    expected = ACCURACY[MEANS.get(of_paper, of_paper)][in_paper]
    spreads = SPREAD.get(SPREADS.get(of_paper, of_paper), {}).get(in_paper, {})
    recipes = table_rows(table, dataset)
    ours = {row: records.of(name, scale) if scale is not None else [] for row, name in recipes.items()}
    made = []
    for row, name in recipes.items():
        entry: dict[str, Any] = {"row": label(row), "recipe": name, "seeds": [r.run.seed for r in ours[row]]}
        entry["reestimated"] = any(record.run.statistics == "reestimated" for record in ours[row])
        for index, measure in enumerate(("top1", "top5")):
            reference = _mean(ours["convolutional"], measure) if row != "convolutional" else None
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


def accuracy_sheet(table: TableName, dataset: str, scale: float | None, rows: list[dict[str, Any]]) -> Sheet:
    """Accuracy, Diff to conv and max − min, each with the paper's beside it."""
    columns, keys = ["", "seeds"], []
    for name, measure in _measures(dataset):
        columns += [name, "paper", "Diff", "paper", "max − min", "paper"]
        keys += [f"{measure}{part}" for part in ("", "_paper", "_difference", "_difference_paper")]
        keys += [f"{measure}_spread", f"{measure}_spread_paper"]
    return _sheet(table, dataset, scale, columns, keys, rows)


def spread_sheet(table: TableName, dataset: str, scale: float | None, rows: list[dict[str, Any]]) -> Sheet:
    """Max − min over seeds, with the paper's beside it."""
    columns, keys = ["", "seeds"], []
    for name, measure in _measures(dataset):
        columns += [f"{name} max − min", "paper"]
        keys += [f"{measure}_spread", f"{measure}_spread_paper"]
    return _sheet(table, dataset, scale, columns, keys, rows)


def _sheet(
    table: TableName, dataset: str, scale: float | None, columns: list[str], keys: list[str], rows: list[dict[str, Any]]
) -> Sheet:
    seeds = SEEDS[OWN_TABLES[table].original if isinstance(table, str) else table]
    runs = f"{seeds} run{'s' * (seeds > 1)}"
    at = "no records, only the paper's numbers" if scale is None else f"scale {scale:g}"
    cells = [
        [
            row["row"] + " *" * row["reestimated"],
            number(len(row["seeds"]) or None, "d"),
            *[number(row[key]) for key in keys],
        ]
        for row in rows
    ]
    notes = (
        [f"Accuracy in percent. Paper: {runs} at scale 1. Ours: mean over the seeds, at {at}.", ROWS] if scale else []
    )
    if any(row["reestimated"] for row in rows):
        notes.append("* evaluated with BatchNorm statistics estimated again on training images; the others: running.")
    if isinstance(table, str):
        if dataset != "cifar10":
            notes.append(CONTEXT)
        return Sheet(f"{table.replace('-', ' ').capitalize()}, {CAPTIONS[table]}: {at}", columns, cells, notes)
    return Sheet(f"Table {table}, {dataset}, {CAPTIONS[table]}: {at}", columns, cells, notes)


def _measures(dataset: str) -> list[tuple[str, str]]:
    """Top-5 for those datasets that the paper has it of."""
    return [("top-1", "top1")] + (
        [("top-5", "top5")] if not dataset.startswith("cifar10-") and dataset != "cifar10" else []
    )


def _mean(records: list[Record], measure: str) -> float | None:
    return mean(record.summary[measure] for record in records) if records else None


def _difference(value: float | None, reference: float | None) -> float | None:
    return None if value is None or reference is None else value - reference


def _spread(records: list[Record], measure: str) -> float | None:
    """Over at least two seeds."""
    values = [record.summary[measure] for record in records]
    return max(values) - min(values) if len(values) > 1 else None
