"""From runs and recordings to a table, a figure and records."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sleepconv.brain.activations import digest_of_values
from sleepconv.brain.recordings import read_folder
from sleepconv.experiments.brain.candidates import candidates
from sleepconv.experiments.brain.scoring import Record, conditions, read, score
from sleepconv.experiments.data.description import StrPath
from sleepconv.experiments.figures.drawing import STYLE, load_pyplot, save
from sleepconv.experiments.paper.numbers import BRAIN_SCORE
from sleepconv.experiments.runs.sheets import MISSING, Sheet
from sleepconv.files import write_atomically

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


if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = dict(zip(ROWS, ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"), strict=True))
Panel = list[tuple[Record, dict[str, Any]]]

LINES = {"trained": "-", "untrained": ":"}


def draw(records: Sequence[Record], stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``: one panel per dataset, one line per network, r against depth."""
    pyplot = load_pyplot()
    panels = _panels(records)
    if not panels:
        raise ValueError("these records compare no layer with neurons, so there is nothing to draw")
    with pyplot.rc_context(STYLE):
        columns = min(4, len(panels))
        rows = -(-len(panels) // columns)
        figure, grid = pyplot.subplots(rows, columns, figsize=(3 * columns, 2.8 * rows + 0.5), squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_axis_off()
        grid.flat[0].plot([], [], "o", color="0.3", mfc="none", ms=7, label="chosen on the other half of the images")
        lines = [pair for axes in grid.flat for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
        shown = {label: line for line, label in lines}
        figure.tight_layout(rect=(0, 0.4 / (2.8 * rows + 0.5), 1, 1))
        figure.legend(
            shown.values(), shown.keys(), loc="lower center", ncols=len(shown) if len(shown) < 9 else 5, fontsize=8
        )
        paths = save(figure, stem)
        pyplot.close(figure)
    return paths


def _panels(records: Sequence[Record]) -> list[Panel]:
    """Every dataset's entries with the records they are from, by region, trained networks first; its versions apart."""
    found: dict[tuple[int, str, str], Panel] = {}
    for record in sorted(records, key=lambda record: KINDS.index(record["kind"])):
        for entry in record["scores"]:
            if "layers" in entry:
                place = COLUMNS.index(entry["region"]) if entry["region"] in COLUMNS else len(COLUMNS)
                version = record.get("data", {}).get(entry["dataset"], "")
                found.setdefault((place, entry["dataset"], version), []).append((record, entry))
    return [found[key] for key in sorted(found)]


def _draw_panel(axes: Axes, panel: Panel) -> None:
    networks = [(record, entry) for record, entry in panel if record["kind"] != "pixels"]
    depth = list(dict.fromkeys(layer for _, entry in networks for layer in entry["layers"]))
    for record, entry in networks:
        _draw_line(axes, record, entry, depth)
    for record, entry in panel:
        if record["kind"] == "pixels":
            axes.axhline(entry["r"], color="0.55", lw=1, label="pixels")
    first = panel[0][1]
    ceiling = "no ceiling" if first["ceiling"] is None else f"ceiling {first['ceiling']:.2f}"
    axes.set_title(f"{first['region']}: {first['dataset']}\n{ceiling}", loc="left", fontsize=7)
    axes.set_xticks(range(len(depth)), depth, rotation=60, ha="right", fontsize=6)
    axes.set_ylabel("ρ" if first["method"] == "rsa" else "held-out r")
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))


def _draw_line(axes: Axes, record: Record, entry: dict[str, Any], depth: list[str]) -> None:
    """One network's layers in order, with a ring around the one that the other half of the images chose."""
    label = record["row"] if record["kind"] == "trained" else f"{record['row']}, untrained"
    colour = COLOURS.get(record["row"], "0.3")
    places = [depth.index(layer) for layer in entry["layers"]]
    values = [layer["r"] for layer in entry["layers"].values()]
    axes.plot(places, values, color=colour, ls=LINES[record["kind"]], marker=".", ms=3, lw=1.2, label=label)
    axes.plot(depth.index(entry["layer"]), entry["layers"][entry["layer"]]["r"], "o", color=colour, mfc="none", ms=7)


TABLE = "table.md"
FIGURES = ("layers.png", "layers.svg")


def score_runs(
    runs: Sequence[StrPath],
    data: StrPath,
    out: StrPath,
    *,
    untrained: bool = False,
    with_pixels: bool = False,
    layers: Sequence[str] | None = None,
    data_dir: StrPath | None = None,
) -> list[Record]:
    """Score the finished runs at and below these paths on all datasets of the folder ``data``."""
    check_folder(Path(out))
    datasets = read_folder(Path(data))
    networks = candidates(runs, untrained=untrained, with_pixels=with_pixels, layers=layers, data_dir=data_dir)
    return score(networks, datasets, Path(out), data_dir=data_dir)


def check_folder(folder: Path) -> None:
    """Refuse a folder in which something would be replaced that this command did not make."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; --out names a folder")
    for path in sorted(folder.glob("*.json")):
        read(path)
    check_tables(folder)


def check_tables(folder: Path) -> None:
    """Refuse a folder whose table or figures are somebody else's; ours begin with the table's title."""
    try:
        ours = (folder / TABLE).read_text(encoding="utf-8").startswith(f"**{TITLE}**")
    except (OSError, UnicodeDecodeError):
        ours = False
    theirs = [name for name in (TABLE, *FIGURES) if (folder / name).exists() and not ours]
    if theirs:
        raise FileExistsError(
            f"{folder / theirs[0]} is there and was not made by `sleepconv brain`, which would replace it; "
            "move it away or name another folder with --out"
        )


def as_text(records: Sequence[Record]) -> str:
    """The table in the form of Table 3, and what lies behind it, in aligned columns."""
    return "\n\n".join([*(sheet.text() for sheet in _sheets(records)), *_not_scored(records)])


def as_markdown(records: Sequence[Record]) -> str:
    """The same for a page."""
    return "\n\n".join([*(sheet.markdown() for sheet in _sheets(records)), *_not_scored(records)])


def _sheets(records: Sequence[Record]) -> list[Sheet]:
    sheets = [main_sheet(records), detail_sheet(records), behaviour_sheet(records)]
    return [sheet for sheet in sheets if sheet.rows]


def _not_scored(records: Sequence[Record]) -> list[str]:
    return [f"Not scored: {line}" for line in missing(records)] + [
        f"Scored on other data than {usual(records)['name']}: {line}" for line in on_other_data(records)
    ]


def as_json(records: Sequence[Record]) -> str:
    """The table and its records for a script."""
    return json.dumps(as_data(records), allow_nan=False)


def write(records: Sequence[Record], folder: StrPath) -> None:
    """Write ``table.md`` and, where matplotlib is installed, ``layers.png`` and ``layers.svg``."""
    folder = Path(folder)
    check_tables(folder)
    write_atomically(folder / TABLE, as_markdown(records) + "\n")
    compared = any("layers" in entry for record in records for entry in record["scores"])
    if compared and importlib.util.find_spec("matplotlib"):
        draw(records, folder / "layers")
