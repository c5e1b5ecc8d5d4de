"""The paper's tables from records: ours beside the paper's. Nothing is trained here, and scales are never mixed."""

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from sleepconv.paper.accuracies import accuracy_rows, accuracy_sheet, spread_sheet
from sleepconv.paper.expected import RATES, SPREAD
from sleepconv.paper.hyperparameters import rate_rows, rate_scales, rate_sheet
from sleepconv.paper.rendering import Sheet
from sleepconv.recipes import datasets_of, table_rows
from sleepconv.recipes.records import read_records
from sleepconv.recipes.rows import TableName
from sleepconv.sweep.search import find_searches

FORMATS = ("text", "markdown", "latex", "csv")
Paths = Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Block:
    """A table's part on one dataset, at one scale (None: only the paper's numbers)."""

    table: TableName
    dataset: str
    scale: float | None
    rows: list[dict[str, Any]]

    def sheet(self) -> Sheet:
        """As it is shown."""
        drawn = rate_sheet if self.table in RATES else spread_sheet if self.table in SPREAD else accuracy_sheet
        return drawn(self.table, self.dataset, self.scale, self.rows)

    def as_dict(self) -> dict[str, Any]:
        """For a script."""
        return {"table": self.table, "dataset": self.dataset, "scale": self.scale, "rows": self.rows}


def blocks(
    table: TableName, paths: Paths, *, dataset: str | None = None, scale: float | None = None
) -> tuple[list[Block], list[str]]:
    """A table of the paper, filled with the records in some folders.

    Args:
        table: its number in the paper, or the name of a miniature.
        paths: folders of runs.
        dataset: only this one; by default all that the table has.
        scale: only this one; by default every scale that there are records of, each on its own.

    Returns:
        one block for each dataset and scale, and a line about each record that was left out.

    >>> [block.scale for block in blocks(1, [], dataset="cifar10")[0]]
    [None]
    """
    check_scale(scale)
    found, left_out = [], []
    for each in datasets_of(table) if dataset is None else [dataset]:
        made, without = (_rate_blocks if table in RATES else _result_blocks)(table, each, paths, scale)
        found += made
        left_out += without
    return found, list(dict.fromkeys(left_out))  # one that cannot be read may belong to any of the datasets


def check_scale(scale: float | None) -> None:
    """Raise a ValueError unless it can be one."""
    if scale is not None and not 0 < scale < inf:
        raise ValueError(f"scale is a fraction of the epochs, above 0, not {scale}")


def _result_blocks(table: TableName, dataset: str, paths: Paths, scale: float | None) -> tuple[list[Block], list[str]]:
    names = table_rows(table, dataset).values()
    records = read_records(paths, names)
    scales: list[float | None] = [scale] if scale is not None else [*records.scales(names)] or [None]
    return [Block(table, dataset, s, accuracy_rows(table, dataset, s, records)) for s in scales], records.left_out


def _rate_blocks(table: TableName, dataset: str, paths: Paths, scale: float | None) -> tuple[list[Block], list[str]]:
    searches, left_out = find_searches(paths)
    scales: list[float | None] = [scale] if scale is not None else [*rate_scales(table, dataset, searches)] or [None]
    return [Block(table, dataset, s, rate_rows(table, dataset, s, searches)) for s in scales], left_out


def rendered(made: Iterable[Block], form: str) -> str:
    """Blocks in one of the `FORMATS`."""
    if form not in FORMATS:
        raise ValueError(f"format is one of {', '.join(FORMATS)}, not {form!r}")
    if form == "csv":
        return _csv([block.as_dict() for block in made])
    return "\n\n".join(getattr(block.sheet(), form)() for block in made) + "\n"


def _csv(made: list[dict[str, Any]]) -> str:
    """One line per dataset, scale and row; what is missing is empty."""
    lines = [
        {**{key: block[key] for key in ("table", "dataset", "scale")}, **row} for block in made for row in block["rows"]
    ]
    content = io.StringIO()
    writer = csv.DictWriter(content, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows([{**line, "seeds": " ".join(map(str, line["seeds"]))} for line in lines])
    return content.getvalue()
