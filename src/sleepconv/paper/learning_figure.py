"""How the networks of the tables learned: accuracy on the test set and in training, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sleepconv.paper.drawing import STYLE, load_pyplot, save
from sleepconv.recipes import datasets_of, label, table_rows
from sleepconv.recipes.records import Record, Records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {4: "Padding 0", 1: "Padding 4", 6: "Padding 8", 2: "Half-width ResNet18"}
COLOURS = {
    "convolutional": "#222222",
    "local": "#d55e00",
    "4_repetitions": "#e08a45",
    "8_repetitions": "#eab082",
    "16_repetitions": "#f2cfb3",
    "sleep_every_1": "#08519c",
    "sleep_every_10": "#4292c6",
    "sleep_every_100": "#9ecae1",
}
WIDTH, HEIGHT = 3.6, 3.4


def draw(records: Records, out: Path, *, dataset: str = "cifar10", scale: float | None = None) -> list[Path]:
    """Draw ``out/learning-<dataset>.png`` and ``.svg``: a panel per table, a line per run.

    Args:
        records: finished runs.
        out: the folder to draw into.
        dataset: whose tables.
        scale: of the runs; by default the largest that there are records of.
    """
    shown = _panels(records, dataset, scale)
    pyplot = load_pyplot()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(
            1, len(shown), sharey=True, squeeze=False, figsize=(WIDTH * len(shown), HEIGHT), layout="constrained"
        )
        for panel, (table, found) in zip(axes[0], shown.items(), strict=True):
            _draw_panel(panel, found)
            panel.set_title(PANELS[table], loc="left", fontsize=9)
        axes[0, 0].set_ylabel("top-1, %")
        _write_legend(figure, axes[0], columns=3 * len(shown))
        drawn = save(figure, out / f"learning-{dataset}")
        pyplot.close(figure)
    return drawn


def _panels(records: Records, dataset: str, scale: float | None) -> dict[int, dict[str, list[Record]]]:
    """By table, the runs of each row; those that have none are left out."""
    tables = {table: table_rows(table, dataset) for table in PANELS if dataset in datasets_of(table)}
    if not tables:
        known = dict.fromkeys(name for table in PANELS for name in datasets_of(table))
        raise ValueError(f"there are tables of {', '.join(known)}, not of {dataset!r}")
    found = records.scales([name for rows in tables.values() for name in rows.values()])
    scale = max(found, default=1.0) if scale is None else scale
    runs = {
        table: {row: made for row, name in rows.items() if (made := records.of(name, scale))}
        for table, rows in tables.items()
    }
    if not any(runs.values()):
        raise FileNotFoundError(f"no finished run of the tables of {dataset} at scale {scale:g} is among the records")
    return {table: rows for table, rows in runs.items() if rows}


def _draw_panel(axes: Axes, rows: dict[str, list[Record]]) -> None:
    for row, records in rows.items():
        for record in records:
            tested, trained = record.folder.metrics("evaluation"), record.folder.metrics("epoch")
            for reports, style in ((tested, "-"), (trained, ":")):
                name = label(row) if style == "-" else ""
                epochs, top1 = ([report[key] for report in reports] for key in ("epoch", "top1"))
                axes.plot(epochs, top1, style, color=COLOURS[row], lw=1.2, label=name)
    axes.set(xlabel="epochs", xlim=(0, None))
    axes.locator_params(axis="x", integer=True)


def _write_legend(figure: Figure, panels: Sequence[Axes], *, columns: int) -> None:
    """One for all panels, in the order of the tables."""
    (dotted,) = panels[0].plot([], [], ":", color="0.4", lw=1.2)
    lines = {line.get_label(): line for axes in panels for line in axes.get_legend_handles_labels()[0]}
    shown = {label(row): lines[label(row)] for row in COLOURS if label(row) in lines} | {"in training": dotted}
    figure.legend(
        shown.values(), shown.keys(), loc="outside lower center", ncols=columns, fontsize=8, columnspacing=1.2
    )
