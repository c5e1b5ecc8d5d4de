"""The angles between forward and feedback weights in training, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleepconv.experiments.figures.drawing import STYLE, load_pyplot, save
from sleepconv.experiments.paper import label, table_rows
from sleepconv.experiments.paper.rows import WAKE_COLUMNS, WAKE_RULES, WAKE_TABLES
from sleepconv.experiments.results.records import read_records
from sleepconv.experiments.results.tables import Paths, check_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 2.6, 2.2
_COLOURS = "viridis"

Angles = dict[str, list[tuple[int, float]]]
"""Optimizer steps and angles in degrees of each layer, the first layer first."""


@dataclass(frozen=True)
class Alignment:
    """The angles of the runs of a wake table at one scale.

    Attributes:
        table: the name of the table.
        scale: of all runs.
        angles: for each rule and connectivity the angles of the first seed.
        left_out: a line about each run that is not shown.
    """

    table: str
    scale: float
    angles: dict[tuple[str, str], Angles]
    left_out: list[str]


def read_alignment(paths: Paths, *, table: str = "wake", scale: float | None = None) -> Alignment:
    """Read the angles that the finished runs of a wake table recorded.

    Args:
        paths: folders of runs.
        table: "wake" or "wake-bartunov".
        scale: of the runs; by default the largest among them.
    """
    check_scale(scale)
    if table not in WAKE_TABLES:
        raise ValueError(f"the table must be one of {', '.join(WAKE_TABLES)}, got {table!r}")
    rows = table_rows(table, WAKE_TABLES[table].dataset)
    wanted = {f"{rule}_{column}": (rule, column) for rule in WAKE_TABLES[table].rules for column in WAKE_COLUMNS}
    names = [rows[row] for row in wanted]
    records = read_records(paths, names)
    scales = records.scales(names)
    chosen = max(scales, default=1.0) if scale is None else scale
    found = {}
    for row, key in wanted.items():
        for record in records.of(rows[row], chosen)[:1]:
            if angles := _angles(record.folder.metrics("alignment")):
                found[key] = angles
    return Alignment(table, chosen, found, records.left_out)


def draw(alignment: Alignment, out: Path) -> list[Path]:
    """Draw ``out/alignment-<table>-scale-<scale>.png`` and ``.svg``: a row per rule, a panel per connectivity."""
    if not alignment.angles:
        raise FileNotFoundError(
            f"no finished run of the table {alignment.table} has recorded angles at scale {alignment.scale:g}; "
            f"`sleepconv sweep {alignment.table} --scale {alignment.scale:g}` trains some"
        )
    pyplot = load_pyplot()
    rules = [rule for rule in WAKE_RULES if any(rule == shown for shown, _ in alignment.angles)]
    columns = [column for column in WAKE_COLUMNS if any(column == shown for _, shown in alignment.angles)]
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(
            len(rules),
            len(columns),
            sharex=True,
            sharey=True,
            squeeze=False,
            figsize=(_WIDTH * len(columns) + 0.6, _HEIGHT * len(rules) + 0.4),
            layout="constrained",
        )
        for i, rule in enumerate(rules):
            for j, column in enumerate(columns):
                _draw_panel(axes[i, j], alignment.angles.get((rule, column), {}))
                axes[i, j].set_title(f"{WAKE_RULES[rule]}\n{label(column)}", loc="left", fontsize=9)
            axes[i, 0].set_ylabel("angle, degrees")
        for panel in axes[-1]:
            panel.set_xlabel("optimizer steps")
        depths = pyplot.cm.ScalarMappable(cmap=_COLOURS)
        bar = figure.colorbar(depths, ax=axes, shrink=0.6, ticks=[0, 1])
        bar.ax.set_yticklabels(["first layer", "last"])
        drawn = save(figure, out / f"alignment-{alignment.table}-scale-{alignment.scale:g}")
        pyplot.close(figure)
    return drawn


def _angles(reports: list[dict[str, Any]]) -> Angles:
    """Return the angles of each layer from the reports of a run.

    >>> _angles([{"step": 5, "layers": {"conv1": 90.0}}, {"step": 10, "layers": {"conv1": 45.0}}])
    {'conv1': [(5, 90.0), (10, 45.0)]}
    """
    angles: Angles = {}
    for report in reports:
        for name, angle in report["layers"].items():
            angles.setdefault(name, []).append((report["step"], angle))
    return angles


def _draw_panel(axes: Axes, angles: Angles) -> None:
    colours = load_pyplot().get_cmap(_COLOURS)
    for place, points in enumerate(angles.values()):
        steps, degrees = zip(*points, strict=True)
        axes.plot(steps, degrees, color=colours(place / max(1, len(angles) - 1)), lw=1.2, marker=".", ms=3)
    axes.axhline(90, color="0.7", lw=0.8, ls=":")
    axes.set(xlim=(0, None), ylim=(0, 100))
