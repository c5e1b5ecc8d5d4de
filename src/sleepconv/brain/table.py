"""The table in the form of the paper's Table 3, and a longer one with every dataset, from records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sleepconv.brain.records import Record

COLUMNS = ("V1", "V2", "V4", "IT", "behaviour")
ROWS = ("conv", "LC", "ws(1)", "ws(10)", "ws(100)")
# Table 3 of Pogodin et al. (2021): ImageNet-trained networks on the benchmarks of Brain-Score in 2021.
PAPER = {
    "conv": {"V1": 0.493, "V2": 0.313, "V4": 0.459, "IT": 0.370, "behaviour": 0.148, "mean": 0.357},
    "LC": {"V1": 0.542, "V2": 0.291, "V4": 0.448, "IT": 0.354, "behaviour": 0.108, "mean": 0.349},
    "ws(1)": {"V1": 0.512, "V2": 0.339, "V4": 0.468, "IT": 0.406, "behaviour": 0.255, "mean": 0.396},
    "ws(10)": {"V1": 0.508, "V2": 0.322, "V4": 0.478, "IT": 0.399, "behaviour": 0.216, "mean": 0.385},
    "ws(100)": {"V1": 0.523, "V2": 0.293, "V4": 0.467, "IT": 0.370, "behaviour": 0.101, "mean": 0.351},
}
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
        rows.append(
            {"kind": kind, "row": name, "scores": scores, "paper": PAPER.get(name) if kind == "trained" else None}
        )
    return {"columns": [*COLUMNS, "mean"], "rows": rows, "ceilings": ceilings(records), "records": list(records)}


def as_markdown(records: Sequence[Record]) -> str:
    """Rows as in Table 3, the paper's numbers in brackets, the best trained network in bold."""
    rows = table_rows(records)
    best = {
        column: max(
            (cells[column].score for (kind, _), cells in rows.items() if kind == "trained" and column in cells),
            default=None,
        )
        for column in (*COLUMNS, "mean")
    }
    lines = [_line(["", *COLUMNS, "mean"]), _line(["---"] * (len(COLUMNS) + 2))]
    for (kind, name), cells in rows.items():
        paper = PAPER.get(name, {}) if kind == "trained" else {}
        label = f"{name}, untrained" if kind == "untrained" else name
        lines.append(_line([label, *(_cell(cells.get(c), paper.get(c), best[c], kind) for c in (*COLUMNS, "mean"))]))
    tops = ceilings(records)
    lines.append(_line(["ceiling", *(_number(tops[c]) if c in tops else "–" for c in COLUMNS), ""]))
    return "\n".join(lines)


def details(records: Sequence[Record]) -> str:
    """Every network on every dataset: the chosen layer, plain r, the score, ridge beside partial least squares."""
    head = ["network", "dataset", "region", "layer", "r", "score", "ceiling", "r, ridge", "neurons", "left out"]
    lines = [_line(head), _line(["---"] * len(head))]
    for record in _sorted(records):
        for entry in record["scores"]:
            if entry["method"] != "error consistency":
                lines.append(_line([_label(record), *_detail(entry)]))
    return "\n".join(lines)


def behaviour_details(records: Sequence[Record]) -> str:
    """Agreement with people; what two people or two halves of them reach is in brackets."""
    head = ["network", "accuracy", "κ", "rank correlation", "soft-label cross-entropy"]
    lines = [_line(head), _line(["---"] * len(head))]
    for record in _sorted(records):
        for entry in record["scores"]:
            if entry["region"] == "behaviour" and entry["score"] is not None:
                pairs = [
                    (entry[name], entry[f"people_{name}"]) for name in ("kappa", "rank_correlation", "cross_entropy")
                ]
                values = [f"{_number(ours)} ({_number(people)})" for ours, people in pairs]
                lines.append(_line([_label(record), f"{100 * entry['accuracy']:.1f} %", *values]))
    return "\n".join(lines)


def missing(records: Sequence[Record]) -> list[str]:
    """What could not be scored, and why."""
    return [
        f"{record['name']} on {entry['dataset']}: {entry['missing']}"
        for record in _sorted(records)
        for entry in record["scores"]
        if "missing" in entry and record["kind"] != "pixels"
    ]


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
    """The mean ceiling of each column's datasets: of r, of ρ (upper bound), of κ."""
    found: dict[str, list[float]] = {}
    for record in records:
        for entry in record["scores"]:
            if entry["score"] is not None:
                found.setdefault(entry["region"], []).append(entry["ceiling"])
    return {column: float(np.mean(found[column])) for column in COLUMNS if column in found}


def _sorted(records: Sequence[Record]) -> list[Record]:
    def place(record: Record) -> tuple[int, int, str, str]:
        row = record["row"]
        return KINDS.index(record["kind"]), ROWS.index(row) if row in ROWS else len(ROWS), row, record["name"]

    return sorted(records, key=place)


def _cells(members: Sequence[Record]) -> Cells:
    found: dict[str, list[Cell]] = {}
    for record in members:
        for entry in record["scores"]:
            if entry["score"] is not None and entry["region"] in COLUMNS:
                found.setdefault(entry["region"], []).append(Cell(entry["score"], entry["score_error"]))
    return {column: _mean(found[column]) for column in COLUMNS if column in found}


def _mean(cells: Sequence[Cell]) -> Cell:
    errors = np.array([cell.error for cell in cells])
    return Cell(float(np.mean([cell.score for cell in cells])), float(np.sqrt(np.square(errors).sum()) / len(cells)))


def _cell(cell: Cell | None, paper: float | None, best: float | None, kind: str) -> str:
    beside = f" ({_number(paper)})" if paper is not None else ""
    if cell is None:
        return f"–{beside}"
    text = f"{_number(cell.score)} ± {_number(cell.error)}"
    return f"**{text}**{beside}" if kind == "trained" and cell.score == best else text + beside


def _detail(entry: dict[str, Any]) -> list[str]:
    score = "–" if entry["score"] is None else f"{_number(entry['score'])} ± {_number(entry['score_error'])}"
    top = "–" if entry["ceiling"] is None else _number(entry["ceiling"])
    plain = f"{_number(entry['r'])} ± {_number(entry['r_error'])}"
    tail = ["–", "–", "–"]
    if entry["method"] == "pls":
        tail = [_number(entry["ridge"]["r"]), str(entry["neurons"]), str(entry["neurons_left_out"])]
    return [entry["dataset"], entry["region"], entry["layer"], plain, score, top, *tail]


def _label(record: Record) -> str:
    return str(record["row"]) + (", untrained" if record["kind"] == "untrained" else "")


def _number(value: float) -> str:
    """Three digits after the point, no zero before it, as in the paper."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
