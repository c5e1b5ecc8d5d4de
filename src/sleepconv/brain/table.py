"""The table in the form of the paper's Table 3, and a longer one with every dataset, from records."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sleepconv.brain.activations import digest_of_values
from sleepconv.brain.records import Record, conditions
from sleepconv.paper.expected import BRAIN_SCORE
from sleepconv.paper.rendering import MISSING, Sheet

TITLE = "Fit to the ventral stream and behaviour"
COLUMNS = ("V1", "V2", "V4", "IT", "behaviour")
ROWS = ("conv", "LC", "ws(1)", "ws(10)", "ws(100)")
NAMES = dict(zip(("convolutional", "local", "sleep_every_1", "sleep_every_10", "sleep_every_100"), ROWS, strict=True))
PAPER = {NAMES[row]: {**areas, "mean": areas["average"]} for row, areas in BRAIN_SCORE.items()}
NOTES = (
    "Scores: V1, V2 and V4 (r / ceiling)², IT ρ / ceiling, behaviour κ / κ of two people; ± deviation over splits, "
    "both averaged over a row's seeds and datasets. The mean is over the columns that are there.",
    "In brackets: Table 3 of the paper, ImageNet-trained networks on the Brain-Score benchmarks of 2021.",
    "Bold: the best trained network. The ceiling is that of r, ρ and κ.",
)
AGREEMENT = ("kappa", "rank_correlation", "cross_entropy")
KINDS = ("trained", "untrained", "pixels")


@dataclass(frozen=True)
class Cell:
    """A score and its deviation over splits."""

    score: float
    error: float


Cells = dict[str, Cell]


def as_data(records: Sequence[Record]) -> dict[str, Any]:
    """The table for a script: rows of cells, ceilings, and the paper's numbers."""
    rows = []
    for (kind, name), cells in table_rows(records).items():
        scores = {column: {"score": cell.score, "error": cell.error} for column, cell in cells.items()}
        rows.append({"kind": kind, "row": name, "scores": scores, "paper": _paper(name, kind) or None})
    return {
        "columns": [*COLUMNS, "mean"],
        "rows": rows,
        "ceilings": ceilings(records),
        "on_other_data": on_other_data(records),
        "records": list(records),
    }


def main_sheet(records: Sequence[Record]) -> Sheet:
    """Rows as in Table 3, the paper's numbers in brackets, the best trained network in bold."""
    rows, columns = table_rows(records), (*COLUMNS, "mean")
    comparable = {(record["kind"], record["row"]) for record in _sorted(records) if _is_usual(record, records)}
    trained = [cells for row, cells in rows.items() if row[0] == "trained" and row in comparable]
    best = {c: max((cells[c].score for cells in trained if c in cells), default=None) for c in columns}
    lines = []
    for (kind, name), cells in rows.items():
        paper = _paper(name, kind)
        bold = {c: best[c] if (kind, name) in comparable else None for c in columns}
        lines.append([_name(name, kind), *(_cell(cells.get(c), paper.get(c), bold[c], kind) for c in columns)])
    tops = ceilings(records)
    lines.append(["ceiling", *(_number(tops[c]) if c in tops else MISSING for c in COLUMNS), MISSING])
    return Sheet(TITLE, ["", *columns], lines, NOTES)


def detail_sheet(records: Sequence[Record]) -> Sheet:
    """Every network on every dataset: the chosen layer, plain r, the score, ridge beside partial least squares."""
    head = ["network", "dataset", "region", "layer", "r", "score", "ceiling", "r, ridge", "neurons", "left out"]
    lines = [
        [_name(record["row"], record["kind"]), *_detail(entry)]
        for record in _sorted(records)
        for entry in record["scores"]
        if entry["method"] != "error consistency"
    ]
    return Sheet(
        "Every dataset", head, lines, ["Without repeats or several subjects there is no ceiling and no score."]
    )


def behaviour_sheet(records: Sequence[Record]) -> Sheet:
    """Agreement with people; what two people or two halves of them reach is in brackets."""
    lines = []
    for record in _sorted(records):
        for entry in record["scores"]:
            if entry["method"] == "error consistency" and entry["score"] is not None:
                pairs = [(entry[name], entry[f"people_{name}"]) for name in AGREEMENT]
                values = [f"{_number(ours)} ({_number(people)})" for ours, people in pairs]
                lines.append([_name(record["row"], record["kind"]), f"{100 * entry['accuracy']:.1f} %", *values])
    head = ["network", "accuracy", "κ", "rank correlation", "soft-label cross-entropy"]
    return Sheet(
        "Behaviour on CIFAR-10", head, lines, ["In brackets: two people, two halves of them, the least possible."]
    )


def missing(records: Sequence[Record]) -> list[str]:
    """What could not be scored, and why."""
    return [
        f"{record['name']} on {entry['dataset']}: {entry['missing']}"
        for record in _sorted(records)
        for entry in record["scores"]
        if "missing" in entry and record["kind"] != "pixels"
    ]


def usual(records: Sequence[Record]) -> Record:
    """The first of the records with the data and settings that most of them have: what others are compared with."""
    counts = Counter(map(conditions, records))
    return max(records, key=lambda record: counts[conditions(record)])


def on_other_data(records: Sequence[Record]) -> list[str]:
    """The records that do not have the data and settings of the usual one."""
    return [record["name"] for record in records if not _is_usual(record, records)]


def _is_usual(record: Record, records: Sequence[Record]) -> bool:
    return conditions(record) == conditions(usual(records))


def table_rows(records: Sequence[Record]) -> dict[tuple[str, str], Cells]:
    """Cells of each (kind, row): means over seeds and over the datasets of a region that have a ceiling.

    The mean over columns is left out where a row lacks a column that another one has.
    """
    rows: dict[tuple[str, str], list[Record]] = {}
    for record in _sorted(records):
        rows.setdefault((record["kind"], record["row"]), []).append(record)
    cells = {key: _cells(members) for key, members in rows.items()}
    present = [column for column in COLUMNS if any(column in row for row in cells.values())]
    for row in cells.values():
        if present and all(column in row for column in present):
            row["mean"] = _mean([row[column] for column in present])
    return cells


def ceilings(records: Sequence[Record]) -> dict[str, float]:
    """The mean ceiling of each column's datasets, of the usual data: of r, of ρ (upper bound), of κ."""
    found: dict[str, list[float]] = {}
    for record in records:
        if not _is_usual(record, records):
            continue
        for entry in record["scores"]:
            if entry["score"] is not None:
                found.setdefault(entry["region"], []).append(entry["ceiling"])
    return {column: float(np.mean(found[column])) for column in COLUMNS if column in found}


def _sorted(records: Sequence[Record]) -> list[Record]:
    """In the table's order; what is not a seed of the same recipe, scored in the same way, gets a row of its own."""

    def place(record: Record) -> tuple[int, int, str, str]:
        row = record["row"]
        return KINDS.index(record["kind"]), ROWS.index(row) if row in ROWS else len(ROWS), row, record["name"]

    return _apart(_apart(sorted(records, key=place), _series), _way)


def _apart(records: Sequence[Record], mark: Callable[[Record], str]) -> list[Record]:
    """The records, with their mark in the name of the row where records of one row have different ones."""
    marks: dict[tuple[str, str], set[str]] = {}
    for record in records:
        marks.setdefault((record["kind"], record["row"]), set()).add(mark(record))
    return [
        record | {"row": f"{record['row']}, {mark(record)}"}
        if len(marks[record["kind"], record["row"]]) > 1
        else record
        for record in records
    ]


def _series(record: Record) -> str:
    """A record's name without the seed: only runs that share it are averaged."""
    return record["name"].rpartition("-seed-")[0]


def _way(record: Record) -> str:
    """A short name for the data, the settings and the layers that a record was made with."""
    layers = [list(entry.get("layers", ())) for entry in record["scores"]]
    return f"scored as {digest_of_values(conditions(record), layers)[:4]}"


def _paper(row: str, kind: str) -> dict[str, float]:
    return PAPER.get(row.partition(", ")[0], {}) if kind == "trained" else {}


def _cells(members: Sequence[Record]) -> Cells:
    found: dict[str, list[Cell]] = {}
    for record in members:
        for entry in record["scores"]:
            if entry["score"] is not None and entry["region"] in COLUMNS:
                found.setdefault(entry["region"], []).append(Cell(entry["score"], entry["score_error"]))
    return {column: _mean(found[column]) for column in COLUMNS if column in found}


def _mean(cells: Sequence[Cell]) -> Cell:
    return Cell(float(np.mean([cell.score for cell in cells])), float(np.mean([cell.error for cell in cells])))


def _cell(cell: Cell | None, paper: float | None, best: float | None, kind: str) -> str:
    beside = f" ({_number(paper)})" if paper is not None else ""
    if cell is None:
        return f"{MISSING}{beside}"
    text = f"{_number(cell.score)} ± {_number(cell.error)}"
    return f"**{text}**{beside}" if kind == "trained" and cell.score == best else text + beside


def _detail(entry: dict[str, Any]) -> list[str]:
    score = MISSING if entry["score"] is None else f"{_number(entry['score'])} ± {_number(entry['score_error'])}"
    top = MISSING if entry["ceiling"] is None else _number(entry["ceiling"])
    plain = f"{_number(entry['r'])} ± {_number(entry['r_error'])}"
    tail = [MISSING, MISSING, MISSING]
    if entry["method"] == "pls":
        tail = [_number(entry["ridge"]["r"]), str(entry["neurons"]), str(entry["neurons_left_out"])]
    return [entry["dataset"], entry["region"], entry["layer"], plain, score, top, *tail]


def _name(row: str, kind: str) -> str:
    return f"{row}, untrained" if kind == "untrained" else row


def _number(value: float) -> str:
    """Three digits after the point, no zero before it, as in the paper."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"
