"""Learning curves of the tables' networks: accuracy on the test set and in training, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from sleepconv.experiments.figures.drawing import STYLE, load_pyplot, save
from sleepconv.experiments.paper import datasets_of, label, table_rows
from sleepconv.experiments.paper.rows import LEARNING_SPEED, TableName
from sleepconv.experiments.results.records import read_records
from sleepconv.experiments.results.tables import CAPTIONS, Paths, check_scale
from sleepconv.experiments.runs import RunFolder
from sleepconv.names import did_you_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TABLES: tuple[TableName, ...] = (4, 1, 6, "learning-speed", 2, "miniature-padding0", "miniature")
_COLOURS = {
    "convolutional": "#222222",
    "local": "#d55e00",
    "4_repetitions": "#e08a45",
    "8_repetitions": "#eab082",
    "16_repetitions": "#f2cfb3",
    "sleep_every_1": "#08519c",
    "sleep_every_10": "#4292c6",
    "sleep_every_100": "#9ecae1",
    "shared_gradients_sleep_every_1": "#006d2c",
    "two_periods_sleep_every_1": "#dd1c77",
    "slow_momentum_sleep_every_10": "#41ab5d",
    "slow_momentum_sleep_every_100": "#a1d99b",
    "nine_filters_sleep_every_1": "#88419d",
    "one_filter_sleep_every_1": "#c994c7",
    "small_rate_convolutional": "#969696",
}
_TRAINED_BY = {"imagenet": "table2", "cifar10-16x16": "miniature"}
_WIDTH, _HEIGHT = 3.6, 2.6
_KINDS = {"evaluation": "test set", "epoch": "in training"}
_BELOW = 10
"""How far below the worst end of a curve a panel begins, in percent: the ends lie close to each other."""

_Curves = dict[str, dict[int, float]]
"""The top-1 accuracy of a run after each epoch, for each of `_KINDS`."""


@dataclass(frozen=True)
class Learning:
    """Learning curves of the runs of a dataset's tables at one scale.

    Attributes:
        dataset: the dataset of the tables.
        scale: the scale of all runs.
        columns: under each title, the rows with finished runs, and for each of them the curves of each seed.
        left_out: a line about each run that is not shown.
    """

    dataset: str
    scale: float
    columns: dict[str, dict[str, list[_Curves]]]
    left_out: list[str]


def read_learning(paths: Paths, *, dataset: str = "cifar10", scale: float | None = None) -> Learning:
    """Read the finished runs of a dataset's tables (the paper's 1, 4 and 6, or 2, and ours), epoch by epoch.

    Args:
        paths: folders of runs.
        dataset: the dataset of the tables.
        scale: of the runs; by default the largest among them.
    """
    check_scale(scale)
    columns = _columns(dataset)
    if not columns:
        known = dict.fromkeys(name for table in _TABLES for name in datasets_of(table))
        raise ValueError(f"no table has the dataset {dataset!r}{did_you_mean(dataset, known)}")
    names = [name for rows in columns.values() for name in rows.values()]
    records = read_records(paths, names)
    scales, left_out = records.scales(names), list(records.left_out)
    chosen = max(scales, default=1.0) if scale is None else scale
    left_out += [
        f"runs at scale {other:g} left out: --scale {other:g} shows them" for other in scales if other != chosen
    ]
    shown: dict[str, dict[str, list[_Curves]]] = {}
    for title, rows in columns.items():
        for row, name in rows.items():
            for record in records.of(name, chosen):
                try:
                    shown.setdefault(title, {}).setdefault(row, []).append(_curves(record.folder))
                except (ValueError, OSError) as error:
                    left_out.append(f"{record.folder.path} left out: {error}")
    return Learning(dataset, chosen, _without_repetitions(shown, columns), list(dict.fromkeys(left_out)))


def _without_repetitions(
    shown: dict[str, dict[str, list[_Curves]]], recipes: dict[str, dict[str, str]]
) -> dict[str, dict[str, list[_Curves]]]:
    """Leave out a column if another one has all its runs: conv and LC stand in several."""
    names = {title: {recipes[title][row] for row in rows} for title, rows in shown.items()}
    kept: list[str] = []
    for title in sorted(names, key=lambda title: len(names[title]), reverse=True):
        if not any(names[title] <= names[other] for other in kept):
            kept.append(title)
    return {title: rows for title, rows in shown.items() if title in kept}


def _columns(dataset: str) -> dict[str, dict[str, str]]:
    """Return the recipe of each row under each title: the paper's rows of a table, then ours beside conv and LC."""
    columns = {}
    for table in _TABLES:
        if dataset not in datasets_of(table):
            continue
        rows = table_rows(table, dataset)
        title = CAPTIONS[table] if isinstance(table, str) else f"{dataset}, {CAPTIONS[table]}"
        if table != "learning-speed":  # the paper's rows are those of Table 1
            columns[title] = {row: name for row, name in rows.items() if row not in LEARNING_SPEED}
        if set(rows) & set(LEARNING_SPEED):
            ours = ("convolutional", "local", *LEARNING_SPEED)
            columns[f"{title}, our variants"] = {row: name for row, name in rows.items() if row in ours}
    return columns


def draw(learning: Learning, out: Path) -> list[Path]:
    """Draw ``out/learning-<dataset>-scale-<scale>.png`` and ``.svg``: a line per row of the tables.

    The upper panels show the test set, the lower ones training. A line is the mean over seeds; the band around it
    is from the worst seed to the best.
    """
    if not learning.columns:
        raise FileNotFoundError(
            f"no finished run of the tables of {learning.dataset} at scale {learning.scale:g}; "
            f"`sleepconv sweep {_TRAINED_BY.get(learning.dataset, 'table1')} --dataset {learning.dataset} "
            f"--scale {learning.scale:g}` trains some"
        )
    pyplot = load_pyplot()
    columns = len(learning.columns)
    with pyplot.rc_context(STYLE):
        figure, grid = pyplot.subplots(
            2,
            columns,
            sharex="col",
            sharey="row",
            squeeze=False,
            figsize=(_WIDTH * columns, 2 * _HEIGHT),
            layout="constrained",
        )
        for kind, panels in zip(_KINDS, grid, strict=True):
            ends = [
                _draw_row(axes, row, [curves[kind] for curves in runs])
                for axes, rows in zip(panels, learning.columns.values(), strict=True)
                for row, runs in rows.items()
            ]
            panels[0].set_ylim(bottom=max(0, min(ends) - _BELOW))
            panels[0].set_ylabel(f"top-1, {_KINDS[kind]}, %")
        for axes, title in zip(grid[0], learning.columns, strict=True):
            axes.set_title(title, loc="left", fontsize=9)
        for axes in grid[1]:
            axes.set(xlabel=f"epochs (scale {learning.scale:g})", xlim=(0, None))
            axes.locator_params(axis="x", integer=True)
        _write_legend(figure, grid[0], columns=max(3, 2 * columns - 1))
        drawn = save(figure, out / f"learning-{learning.dataset}-scale-{learning.scale:g}")
        pyplot.close(figure)
    return drawn


def _curves(folder: RunFolder) -> _Curves:
    curves = {}
    for kind in _KINDS:
        if not (reports := folder.metrics(kind)):
            raise ValueError(f"metrics have no report of kind {kind!r}")
        curves[kind] = {report["epoch"]: report["top1"] for report in reports}
    return curves


def _draw_row(axes: Axes, row: str, seeds: Sequence[dict[int, float]]) -> float:
    """Draw a row's mean over seeds and the band from the worst to the best; return where the worst ends."""
    epochs = sorted({epoch for seed in seeds for epoch in seed})
    values = [[seed[epoch] for seed in seeds if epoch in seed] for epoch in epochs]
    mean, worst, best = ([of(each) for each in values] for of in (fmean, min, max))
    alone = len(epochs) == 1  # a point, and a bar in place of a band
    axes.plot(epochs, mean, color=_COLOURS[row], lw=1.2, marker="." if alone else "", label=label(row))
    if len(seeds) > 1:
        axes.fill_between(epochs, worst, best, color=_COLOURS[row], alpha=0.25, lw=1.2 if alone else 0)
    return worst[-1]


def _write_legend(figure: Figure, panels: Sequence[Axes], *, columns: int) -> None:
    """Add one legend for all panels, in the order of the tables."""
    lines = {line.get_label(): line for axes in panels for line in axes.get_legend_handles_labels()[0]}
    shown = {label(row): lines[label(row)] for row in _COLOURS if label(row) in lines}
    figure.legend(
        shown.values(), shown.keys(), loc="outside lower center", ncols=columns, fontsize=8, columnspacing=1.2
    )
