"""How well each layer fits each dataset, drawn from records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleepconv.brain.records import Record
from sleepconv.brain.table import COLUMNS, KINDS, ROWS
from sleepconv.paper.drawing import STYLE, load_pyplot, save

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
