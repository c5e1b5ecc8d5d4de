"""How well each layer fits each dataset, drawn from records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleepconv.brain.records import Record
from sleepconv.brain.table import KINDS, ROWS
from sleepconv.paper.drawing import STYLE, load_pyplot, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = dict(zip(ROWS, ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"), strict=True))
LINES = {"trained": "-", "untrained": ":"}


def draw(records: Sequence[Record], stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``: one panel per dataset, one line per network, r against depth."""
    pyplot = load_pyplot()
    names = list(dict.fromkeys(e["dataset"] for record in records for e in record["scores"] if "layers" in e))
    if not names:
        raise ValueError("these records compare no layer with neurons, so there is nothing to draw")
    with pyplot.rc_context(STYLE):
        columns = min(3, len(names))
        rows = -(-len(names) // columns)
        figure, grid = pyplot.subplots(rows, columns, figsize=(3.3 * columns, 2.9 * rows + 0.5), squeeze=False)
        for axes, name in zip(grid.flat, names, strict=False):
            _panel(axes, name, records)
        for axes in list(grid.flat)[len(names) :]:
            axes.set_axis_off()
        shown = {
            label: line for axes in grid.flat for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.tight_layout(rect=(0, 0.5 / (2.9 * rows + 0.5), 1, 1))
        figure.legend(shown.values(), shown.keys(), loc="lower center", ncols=min(len(shown), 5), fontsize=8)
        paths = save(figure, stem)
        pyplot.close(figure)
    return paths


def _panel(axes: Axes, dataset: str, records: Sequence[Record]) -> None:
    entries = [(record, e) for record in records for e in record["scores"] if e["dataset"] == dataset and "layers" in e]
    depth: list[str] = []
    for record, entry in sorted(entries, key=lambda pair: KINDS.index(pair[0]["kind"])):
        if record["kind"] == "pixels":
            axes.axhline(entry["r"], color="0.55", lw=1, label="pixels")
            continue
        depth = list(entry["layers"])
        _line(axes, record, entry)
    top = entries[0][1]["ceiling"]
    if top is not None:
        axes.axhline(top, color="black", lw=0.8, ls=(0, (4, 3)), label="ceiling")
    axes.set_xticks(range(len(depth)), depth, rotation=60, ha="right", fontsize=6)
    axes.set_ylabel("ρ" if entries[0][1]["method"] == "rsa" else "held-out r")
    axes.set_title(f"{entries[0][1]['region']}: {dataset}", loc="left", fontsize=8)


def _line(axes: Axes, record: Record, entry: dict[str, Any]) -> None:
    """One network's layers in order, with a ring around the one that the other half of the images chose."""
    label = record["row"] if record["kind"] == "trained" else f"{record['row']}, untrained"
    colour, layers = COLOURS.get(record["row"], "0.3"), list(entry["layers"])
    values = [entry["layers"][name]["r"] for name in layers]
    axes.plot(values, color=colour, ls=LINES[record["kind"]], marker=".", ms=3, lw=1.2, label=label)
    place = layers.index(entry["layer"])
    axes.plot([place], [values[place]], "o", color=colour, mfc="none", ms=7)
