"""Records of scores, as a table in the form of the paper's Table 3 and as a figure of every layer."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sleepconv.experiments.figures.drawing import STYLE, load_pyplot, save
from sleepconv.experiments.paper.numbers import BRAIN_SCORE
from sleepconv.experiments.results.sheets import MISSING, Sheet
from sleepconv.files import output_folder, parse_json, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ScoreRecord = dict[str, Any]

_TABLE, _FIGURES = "table.md", ("layers.png", "layers.svg")
_TITLE = "Fit to the ventral stream and behaviour"
_NOTES = (
    "Scores: V1, V2 and V4 (r / ceiling)², IT ρ / ceiling, behaviour κ / κ of two people; ± deviation over splits, "
    "both averaged over a row's seeds and datasets. The mean is over the columns that are there.",
    "In brackets: Table 3 of the paper, ImageNet-trained networks on the Brain-Score benchmarks of 2021.",
    "Bold: the best trained network. The ceiling is that of r, ρ and κ.",
)
_COLUMNS = ("V1", "V2", "V4", "IT", "behaviour")
_ROWS = {
    "convolutional": "conv",
    "local": "LC",
    "sleep_every_1": "ws(1)",
    "sleep_every_10": "ws(10)",
    "sleep_every_100": "ws(100)",
}
_ORDER = [*_ROWS.values(), "ViT, shared", "Mixer, shared"]
PAPER = {_ROWS[row]: {**areas, "mean": areas["average"]} for row, areas in BRAIN_SCORE.items()}
_KINDS = ("trained", "untrained", "pixels")
_AGREEMENT = ("kappa", "rank_correlation", "cross_entropy")
_COLOURS = dict(zip(_ROWS.values(), ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"), strict=True))
_LINES = {
    "shared gradients": "--",
    "two periods": "-.",
    "slow momentum": "--",
    "Hebbian": "--",
    "network circuit": "-.",
    "reps": "--",
}


@dataclass(frozen=True)
class _Cell:
    """A score and its deviation over splits."""

    score: float
    error: float


_Cells = dict[str, _Cell]
_Panel = list[tuple[ScoreRecord, dict[str, Any]]]


def read_all_scores(paths: Iterable[Path | str]) -> list[ScoreRecord]:
    """Read the records in these files and folders, in alphabetical order; two records of one network must agree."""
    paths = list(paths)
    for path in paths:
        if not Path(path).exists():
            raise FileNotFoundError(
                f"{path} does not exist; name a record of `sleepconv brain score`, or a folder of them"
            )
    files = [file for path in map(Path, paths) for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not files:
        raise FileNotFoundError(f"no record in {', '.join(map(str, paths))}; `sleepconv brain score` writes them")
    found: dict[str, tuple[Path, ScoreRecord]] = {}
    for file in files:
        record = read_scores(file)
        first, known = found.setdefault(record["name"], (file, record))
        if record != known and _identity(record) != _identity(known):
            raise ValueError(
                f"{first} and {file} are different records of {record['name']}, with other weights, data or settings; "
                "leave one out"
            )
    return [record for _, record in found.values()]


def read_scores(path: Path) -> ScoreRecord:
    """Read one record; raise a ValueError if the file is something else."""
    try:
        record = parse_json(path.read_text())
        if all(isinstance(record[key], str) for key in ("name", "row", "kind")) and isinstance(record["scores"], list):
            return record
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is not a record of `sleepconv brain score`; move it away or choose another folder")


def write_scores(folder: Path, record: ScoreRecord) -> Path:
    """Write a record atomically as ``folder/name.json``."""
    path = folder / f"{record['name']}.json"
    write_atomically(path, json.dumps(record, indent=1, allow_nan=False) + "\n")
    return path


def write(records: Sequence[ScoreRecord], folder: str | os.PathLike[str]) -> None:
    """Write ``table.md`` and, if matplotlib is installed, ``layers.png`` and ``layers.svg``."""
    folder = Path(folder)
    _check_tables(folder)
    write_atomically(folder / _TABLE, rendered(records, "markdown") + "\n")
    compared = any("layers" in entry for record in records for entry in record["scores"])
    if compared and importlib.util.find_spec("matplotlib"):
        draw(records, folder / "layers")


def rendered(records: Sequence[ScoreRecord], form: str) -> str:
    """Return the table in the form of Table 3, with details, as "text", "markdown" or "json"."""
    if form == "json":
        return json.dumps(as_data(records), allow_nan=False)
    sheets = [main_sheet(records), _detail_sheet(records), _behaviour_sheet(records)]
    remarks = [f"Not scored: {line}" for line in _not_scored(records)]
    usual = _comparable(records)[0]["name"]
    remarks += [f"Scored on other data than {usual}: {name}" for name in _on_other_data(records)]
    return "\n\n".join([*(getattr(sheet, form)() for sheet in sheets if sheet.rows), *remarks])


def as_data(records: Sequence[ScoreRecord]) -> dict[str, Any]:
    """Return the table for a script: rows of cells, ceilings, and the paper's numbers."""
    rows, paper = [], _paper(records)
    for (kind, name), cells in cells_by_network(records).items():
        scores = {column: {"score": cell.score, "error": cell.error} for column, cell in cells.items()}
        rows.append({"kind": kind, "row": name, "scores": scores, "paper": paper.get((kind, name))})
    return {
        "columns": [*_COLUMNS, "mean"],
        "rows": rows,
        "ceilings": ceilings(records),
        "on_other_data": _on_other_data(records),
        "records": list(records),
    }


def main_sheet(records: Sequence[ScoreRecord]) -> Sheet:
    """Make the table: rows as in Table 3, the paper's numbers in brackets, the best trained network in bold."""
    rows, columns, paper = cells_by_network(records), (*_COLUMNS, "mean"), _paper(records)
    names = {record["name"] for record in _comparable(records)}
    comparable = {(record["kind"], record["row"]) for record in _sorted(records) if record["name"] in names}
    trained = [cells for row, cells in rows.items() if row[0] == "trained" and row in comparable]
    best = {c: max((cells[c].score for cells in trained if c in cells), default=None) for c in columns}
    lines = []
    for (kind, name), cells in rows.items():
        theirs = paper.get((kind, name), {})
        bold = {c: best[c] if (kind, name) in comparable else None for c in columns}
        lines.append([_name(name, kind), *(_cell(cells.get(c), theirs.get(c), bold[c], kind) for c in columns)])
    limits = ceilings(records)
    lines.append(["ceiling", *(_number(limits.get(c)) for c in _COLUMNS), MISSING])
    return Sheet(_TITLE, ["", *columns], lines, _NOTES)


def _detail_sheet(records: Sequence[ScoreRecord]) -> Sheet:
    """List every network on every dataset: the chosen layer, r, the score, ridge beside partial least squares."""
    head = ["network", "dataset", "region", "layer", "r", "score", "ceiling", "r, ridge", "neurons", "left out"]
    lines = [
        [_name(record["row"], record["kind"]), *_detail(entry)]
        for record in _sorted(records)
        for entry in record["scores"]
        if entry["method"] != "error consistency"
    ]
    notes = ["Without repeats or several subjects there is no ceiling and no score."]
    return Sheet("Every dataset", head, lines, notes)


def _behaviour_sheet(records: Sequence[ScoreRecord]) -> Sheet:
    """List each network's agreement with people, and in brackets that between people."""
    lines = []
    for record in _sorted(records):
        for entry in record["scores"]:
            if entry["method"] == "error consistency" and entry["score"] is not None:
                pairs = [(entry[name], entry[f"people_{name}"]) for name in _AGREEMENT]
                values = [f"{_number(ours)} ({_number(people)})" for ours, people in pairs]
                lines.append([_name(record["row"], record["kind"]), f"{100 * entry['accuracy']:.1f} %", *values])
    head = ["network", "accuracy", "κ", "rank correlation", "soft-label cross-entropy"]
    notes = ["In brackets: two people, two halves of them, the least possible."]
    return Sheet("Behaviour on CIFAR-10", head, lines, notes)


def draw(records: Sequence[ScoreRecord], stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``: one panel per dataset, one line per network, r against depth."""
    pyplot = load_pyplot()
    panels = _panels(records)
    if not panels:
        raise ValueError("nothing to draw: no record compares layers with neurons")
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
        across = max(1, min(len(shown), columns * 44 // (max(map(len, shown)) + 9)))
        figure.tight_layout(rect=(0, 0.2 * max(2, ceil(len(shown) / across)) / (2.8 * rows + 0.5), 1, 1))
        figure.legend(shown.values(), shown.keys(), loc="lower center", ncols=across, fontsize=8)
        paths = save(figure, stem)
        pyplot.close(figure)
    return paths


def cells_by_network(records: Sequence[ScoreRecord]) -> dict[tuple[str, str], _Cells]:
    """Return the cells of each (kind, row): means over seeds and over the datasets of a region that have a ceiling.

    A row that lacks a column that another row has gets no mean over columns.
    """
    rows: dict[tuple[str, str], list[ScoreRecord]] = {}
    for record in _sorted(records):
        rows.setdefault((record["kind"], record["row"]), []).append(record)
    cells = {key: _cells(members) for key, members in rows.items()}
    present = [column for column in _COLUMNS if any(column in row for row in cells.values())]
    for row in cells.values():
        if present and all(column in row for column in present):
            row["mean"] = _mean([row[column] for column in present])
    return cells


def ceilings(records: Sequence[ScoreRecord]) -> dict[str, float]:
    """Return the mean ceiling of each column's datasets: of r, of ρ (upper bound), of κ."""
    found: dict[str, list[float]] = {}
    for record in _comparable(records):
        for entry in record["scores"]:
            if entry["score"] is not None:
                found.setdefault(entry["region"], []).append(entry["ceiling"])
    return {column: fmean(found[column]) for column in _COLUMNS if column in found}


def _not_scored(records: Sequence[ScoreRecord]) -> list[str]:
    """Say what could not be scored, and why."""
    return [
        f"{record['name']} on {entry['dataset']}: {entry['missing']}"
        for record in _sorted(records)
        for entry in record["scores"]
        if "missing" in entry and record["kind"] != "pixels"
    ]


def _conditions(record: ScoreRecord) -> str:
    """Describe the data and settings of a record: only scores with the same ones can be compared or averaged.

    >>> record = {"data": {"mine": "1f3a"}, "settings": {"folds": 10}, "scores": []}
    >>> _conditions(record) == _conditions(record | {"data": {"mine": "77c0"}})
    False
    """
    names = sorted(entry["dataset"] for entry in record["scores"])
    return json.dumps([names, record.get("data"), record.get("settings")], sort_keys=True)


def _identity(record: ScoreRecord) -> tuple[Any, ...]:
    """Return what two records of one network share even if one took longer: weights, data and settings."""
    return record.get("fingerprint", record["scores"]), record.get("data"), record.get("settings")


def _comparable(records: Sequence[ScoreRecord]) -> list[ScoreRecord]:
    """Return the records with the data and settings that most records have."""
    usual = Counter(map(_conditions, records)).most_common(1)[0][0]
    return [record for record in records if _conditions(record) == usual]


def _on_other_data(records: Sequence[ScoreRecord]) -> list[str]:
    comparable = [record["name"] for record in _comparable(records)]
    return [record["name"] for record in records if record["name"] not in comparable]


def _sorted(records: Sequence[ScoreRecord]) -> list[ScoreRecord]:
    """Sort as in the table, and separate what is not a seed of the same recipe or was scored in another way."""

    def place(record: ScoreRecord) -> tuple[int, int, str, str]:
        row = record["row"]
        return _KINDS.index(record["kind"]), _ORDER.index(row) if row in _ORDER else len(_ORDER), row, record["name"]

    return _separated(_separated(sorted(records, key=place), _series), _way)


def _separated(records: Sequence[ScoreRecord], label: Callable[[ScoreRecord], str]) -> list[ScoreRecord]:
    """Add a label to the row of each record where the records of one row have different labels."""
    labels: dict[tuple[str, str], set[str]] = {}
    for record in records:
        labels.setdefault((record["kind"], record["row"]), set()).add(label(record))
    return [
        record | {"row": f"{record['row']}, {label(record)}"}
        if len(labels[record["kind"], record["row"]]) > 1
        else record
        for record in records
    ]


def _series(record: ScoreRecord) -> str:
    """Return a record's name without the seed: only runs that share it are averaged."""
    return record["name"].rpartition("-seed-")[0]


def _way(record: ScoreRecord) -> str:
    """Return a short name for the data, settings and layers of a record."""
    layers = [list(entry.get("layers", ())) for entry in record["scores"]]
    digest = hashlib.blake2b(f"{_conditions(record)!r}{layers!r}".encode(), digest_size=12)
    return f"scored as {digest.hexdigest()[:4]}"


def _paper(records: Sequence[ScoreRecord]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the paper's numbers of the rows whose networks Table 3 has; networks trained in other ways have none."""
    original = {record["name"]: record["row"] for record in records}
    rows = {(record["kind"], record["row"]): original[record["name"]] for record in _sorted(records)}
    return {row: PAPER[network] for row, network in rows.items() if row[0] == "trained" and network in PAPER}


def _cells(members: Sequence[ScoreRecord]) -> _Cells:
    found: dict[str, list[_Cell]] = {}
    for record in members:
        for entry in record["scores"]:
            if entry["score"] is not None and entry["region"] in _COLUMNS:
                found.setdefault(entry["region"], []).append(_Cell(entry["score"], entry["score_error"]))
    return {column: _mean(found[column]) for column in _COLUMNS if column in found}


def _mean(cells: Sequence[_Cell]) -> _Cell:
    return _Cell(fmean(cell.score for cell in cells), fmean(cell.error for cell in cells))


def _cell(cell: _Cell | None, paper: float | None, best: float | None, kind: str) -> str:
    beside = f" ({_number(paper)})" if paper is not None else ""
    if cell is None:
        return f"{MISSING}{beside}"
    text = f"{_number(cell.score)} ± {_number(cell.error)}"
    return f"**{text}**{beside}" if kind == "trained" and cell.score == best else text + beside


def _detail(entry: dict[str, Any]) -> list[str]:
    r = f"{_number(entry['r'])} ± {_number(entry['r_error'])}"
    score = MISSING if entry["score"] is None else f"{_number(entry['score'])} ± {_number(entry['score_error'])}"
    neurons = [MISSING, MISSING, MISSING]
    if entry["method"] == "pls":
        neurons = [_number(entry["ridge"]["r"]), str(entry["neurons"]), str(entry["neurons_left_out"])]
    return [entry["dataset"], entry["region"], entry["layer"], r, score, _number(entry["ceiling"]), *neurons]


def _name(row: str, kind: str) -> str:
    return f"{row}, untrained" if kind == "untrained" else row


def _number(value: float | None) -> str:
    """Format with three decimals and no leading zero, as in the paper."""
    if value is None:
        return MISSING
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def _panels(records: Sequence[ScoreRecord]) -> list[_Panel]:
    """Group the entries by dataset and its version, with their records: by region, in the order of the table."""
    found: dict[tuple[int, str, str], _Panel] = {}
    for record in _sorted(records):
        for entry in record["scores"]:
            if "layers" in entry:
                place = _COLUMNS.index(entry["region"]) if entry["region"] in _COLUMNS else len(_COLUMNS)
                version = record.get("data", {}).get(entry["dataset"], "")
                found.setdefault((place, entry["dataset"], version), []).append((record, entry))
    return [found[key] for key in sorted(found)]


def _draw_panel(axes: Axes, panel: _Panel) -> None:
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


def _draw_line(axes: Axes, record: ScoreRecord, entry: dict[str, Any], depth: list[str]) -> None:
    """Draw one network's layers in order, with a ring around the one that the other half of the images chose."""
    label = _name(record["row"], record["kind"])
    colour, line = _style(record["row"], record["kind"])
    places = [depth.index(layer) for layer in entry["layers"]]
    values = [layer["r"] for layer in entry["layers"].values()]
    axes.plot(places, values, color=colour, ls=line, marker=".", ms=3, lw=1.2, label=label)
    axes.plot(depth.index(entry["layer"]), entry["layers"][entry["layer"]]["r"], "o", color=colour, mfc="none", ms=7)


def _style(row: str, kind: str) -> tuple[str, str]:
    """Return the colour of a network's connectivity and sleep, and the line of how it is trained.

    >>> _style("LC", "trained") == _style("ViT, per patch", "trained")
    True
    >>> _style("ws(100, Hebbian), learned grids", "trained"), _style("ws(100)", "untrained")
    (('#e69f00', '--'), ('#e69f00', ':'))
    """
    sleep = re.search(r"ws\(\d+", row)
    network = f"{sleep[0]})" if sleep else "LC" if "LC" in row or "per patch" in row else "conv"
    lines = [line for treatment, line in _LINES.items() if treatment in row]
    return _COLOURS.get(network, "0.3"), ":" if kind == "untrained" else lines[-1] if lines else "-"


def check_folder(folder: Path) -> None:
    """Raise an error if the folder has files in our places that `sleepconv brain` did not write."""
    output_folder(folder)
    for path in sorted(folder.glob("*.json")):
        read_scores(path)
    _check_tables(folder)


def _check_tables(folder: Path) -> None:
    """Raise an error if table or figures are someone else's; our table begins with its title."""
    try:
        if (folder / _TABLE).read_text(encoding="utf-8").startswith(f"**{_TITLE}**"):
            return
    except (OSError, UnicodeDecodeError):
        pass
    for name in (_TABLE, *_FIGURES):
        if (folder / name).exists():
            raise FileExistsError(
                f"{folder / name} exists and was not written by `sleepconv brain`; "
                "move it away or choose another folder with --out"
            )
