"""Tables 10 to 12: the rates that our grid searches chose beside the paper's, which the recipes use."""

from collections.abc import Sequence
from typing import Any

from sleepconv.paper.expected import RATES
from sleepconv.paper.rendering import Sheet, number
from sleepconv.recipes import label, table_rows
from sleepconv.recipes.rows import PADDING, TableName
from sleepconv.sweep.search import Search


def rate_scales(table: TableName, dataset: str, searches: Sequence[Search]) -> list[float]:
    """The scales at which a rate of this table was searched."""
    grids = {f"{name}_grid" for name in table_rows(table, dataset).values()}
    return sorted({search.scale for search in searches if search.grid in grids})


def rate_rows(table: TableName, dataset: str, scale: float | None, searches: Sequence[Search]) -> list[dict[str, Any]]:
    """Ours and the paper's rates, row by row; of two searches of one grid the first counts."""
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


def rate_sheet(table: TableName, dataset: str, scale: float | None, rows: list[dict[str, Any]]) -> Sheet:
    """Learning rate and weight decay, with the paper's beside them."""
    at = "no grid searches, only the paper's numbers" if scale is None else f"scale {scale:g}"
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
    notes = ["Ours: the best of our grid search. The recipes use the paper's."] if scale else []
    return Sheet(f"Table {table}, {dataset}, hyperparameters for padding {PADDING[table]}: {at}", columns, cells, notes)
