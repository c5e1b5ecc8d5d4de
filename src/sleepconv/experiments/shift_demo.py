"""Digits shown only on the left: which network recognises them elsewhere?

A convolutional, a locally connected and a sleeping locally connected network see digits only in the left part of their
visual field and are then tested everywhere. Sharing on lateral grids carries what was learned to the places that the
theory names, 12 pixels away, and to no others.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np

from sleepconv.experiments.data import load_task
from sleepconv.experiments.data.digits import SEEN_COLUMNS
from sleepconv.experiments.figures.drawing import STYLE, load_pyplot, save
from sleepconv.experiments.figures.visual_field import (
    VisualField,
    draw_visual_field,
    mean_of,
    measure_visual_field,
    read_visual_field,
)
from sleepconv.experiments.interrupts import terminated_like_interrupted
from sleepconv.experiments.paper import recipe, table_rows
from sleepconv.experiments.report import write_report
from sleepconv.experiments.results.sheets import Sheet
from sleepconv.experiments.runs import Run, RunFolder, run_path
from sleepconv.experiments.runs.machine import available_cores
from sleepconv.experiments.runs.run import Grids, Wake
from sleepconv.experiments.sweep import sweep
from sleepconv.experiments.training import train
from sleepconv.experiments.workers import Processes, receive_run
from sleepconv.files import output_folder

DEMO_NETWORKS = table_rows("demo", "digits-left")
"""The recipe of each network."""
_PARTS = {"0–4, seen in training": range(5), "6–10, never seen": range(6, 11), "12–16, never seen": range(12, 17)}
_INTRODUCTION = """<p>Three networks of three 3×3 layers (strides 1, 2, 2) saw handwritten digits only in the left part
of a 12×24 visual field. Then they were tested with digits at every place. The theory says: a locally connected network
knows nothing on the right; with sleep it recognises digits 12 pixels away from where it has seen them, as far as its
lateral grids reach, and not in between; a convolutional network recognises them everywhere. {learned}This was
measured, in percent by the column of the digit's left edge (mean of {runs}):</p>"""

_WITHOUT_TRANSPORT = "They learned without weight transport: errors came back through feedback weights of their own. "
_LEARNED = "<p>The network that sleeps has learned its lateral grids from correlations before training.</p>"


@dataclass(frozen=True)
class Demo:
    """What the demo measured, and the files that it wrote.

    >>> Demo({}, seeds=3, report=Path("report.html"), pictures=[]).as_dict()  # nothing measured yet
    {}
    """

    fields: dict[str, VisualField]
    seeds: int
    report: Path
    pictures: Sequence[Path]

    def as_dict(self) -> dict[str, dict[str, float]]:
        """{network: {column: accuracy in percent}}, mean over seeds and rows."""
        return {
            network: {str(column): round(mean, 2) for column, mean in field.by_column().items()}
            for network, field in self.fields.items()
        }

    def table(self) -> str:
        """The accuracies in the three parts of the visual field, as text."""
        note = f"Mean of {_runs(self.seeds)}, {_images(self.fields)} test digits at each place."
        columns = ["", *[f"columns {part}" for part in _PARTS]]
        return Sheet("Accuracy in percent", columns, _part_rows(self.fields), [note]).text()


def run_demo(
    out: str | PathLike[str],
    *,
    seeds: int = 3,
    scale: float = 1.0,
    grids: Grids = "given",
    wake: Wake = "backprop",
    say: Callable[[str], object] = lambda text: None,
) -> Demo:
    """Train the three networks, test them at every place, draw the maps and write the report.

    Args:
        out: the folder to write to; what an earlier demo left there is replaced.
        seeds: the number of networks of each kind.
        scale: the fraction of the epochs to train.
        grids: of the network that sleeps: "given", or "learned" from correlations before training.
        wake: how the networks learn: by backpropagation, or by a rule without weight transport.
        say: called with a line about each event.

    >>> with tempfile.TemporaryDirectory() as out:  # doctest: +SKIP
    ...     print(run_demo(out, say=print).table())
    """
    if seeds < 1:
        raise ValueError(f"`seeds` must be at least 1, got {seeds}")
    load_pyplot()
    runs = {
        (network, seed): demo_run(network, seed=seed, scale=scale, grids=grids, wake=wake)
        for network in reversed(DEMO_NETWORKS)
        for seed in range(seeds)
    }
    out = output_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    with (
        terminated_like_interrupted("the demo was stopped"),
        tempfile.TemporaryDirectory(dir=out, prefix=".demo-") as draft,
    ):
        _train_all(list(runs.values()), Path(draft), say)
        folders = {key: _settle(run_path(draft, run), run_path(out / "runs", run)) for key, run in runs.items()}
    fields = {network: mean_of([_field(folders[network, seed]) for seed in range(seeds)]) for network in DEMO_NETWORKS}
    pictures = _draw_maps(fields, out)
    table = Sheet("", ["", *_PARTS], _part_rows(fields)).html()
    report = write_report(
        [folders[network, seed] for network in DEMO_NETWORKS for seed in range(seeds)],
        out / "report.html",
        title="Digits where no digit was ever seen",
        introduction=_INTRODUCTION.format(learned=_WITHOUT_TRANSPORT * (wake != "backprop"), runs=_runs(seeds))
        + table
        + (_LEARNED if grids == "learned" else ""),
    )
    return Demo(fields, seeds, report, pictures)


def demo_run(
    network: str, *, seed: int = 0, scale: float = 1.0, grids: Grids = "given", wake: Wake = "backprop"
) -> Run:
    """Return the run of one of the three networks; only the one that sleeps has use for learned grids.

    >>> demo_run("local with sleep").sleep_every
    1
    """
    run = recipe(DEMO_NETWORKS[network], seed=seed, scale=scale, wake=wake)
    if grids == "learned" and run.sleep_every is not None:
        return run.changed(name=f"{run.name}_learned_grids", grids=grids)
    return run


def _part_rows(fields: dict[str, VisualField]) -> list[list[str]]:
    """Return a row of texts for each network: its mean accuracy in each part of the visual field.

    >>> everywhere = VisualField([0, 1], list(range(17)), [[90.0] * 17] * 2, images=360)
    >>> _part_rows({"convolutional": everywhere})
    [['convolutional', '90', '90', '90']]
    """
    rows = []
    for network, field in fields.items():
        columns = field.by_column()
        rows.append([network, *[f"{np.mean([columns[column] for column in part]):.0f}" for part in _PARTS.values()]])
    return rows


def _draw_maps(fields: dict[str, VisualField], out: Path) -> list[Path]:
    """Draw the maps below each other as ``out/accuracy-maps.png`` and ``.svg``.

    >>> field = VisualField([0, 1], list(range(17)), [[90.0] * 17] * 2, images=360)
    >>> with tempfile.TemporaryDirectory() as out:
    ...     [path.name for path in _draw_maps({"convolutional": field, "local": field}, Path(out))]
    ['accuracy-maps.png', 'accuracy-maps.svg']
    """
    pyplot = load_pyplot()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(len(fields), 1, figsize=(6.6, 6.9), layout="constrained")
        for panel, (network, field) in zip(axes, fields.items(), strict=True):
            mesh = draw_visual_field(panel, field, numbers=True)
            panel.set_title(network, loc="left", fontsize=10)
            panel.set_ylabel("row")
        axes[-1].set_xlabel("column of the digit's upper left corner; frame: the places seen in training")
        figure.colorbar(mesh, ax=axes, shrink=0.5, label="accuracy, %")
        paths = save(figure, out / "accuracy-maps")
        pyplot.close(figure)
    return paths


def _train_all(runs: Sequence[Run], into: Path, say: Callable[[str], object]) -> None:
    """Train and test the networks, with one thread each: they are too small for more."""
    command = [sys.executable, "-m", "sleepconv.experiments.shift_demo", str(into)]
    failed = sweep(runs, Processes(into, command, count=min(len(runs), available_cores()), threads=1), say)
    if failed:
        raise RuntimeError("; ".join(f"{title} failed: {reason}" for title, reason in failed.items()))


def _train_and_test(run: Run, into: str) -> None:
    """Do the work of one process of `_train_all`."""
    records = RunFolder(run_path(into, run))
    task = load_task(run.dataset)
    train(run, records.path, task=task, quiet=True)
    field = measure_visual_field(records.load_model(), task)
    assert field is not None
    replace(field, seen=(field.rows, list(SEEN_COLUMNS))).write(records)


def _settle(draft: Path, final: Path) -> RunFolder:
    """Move a finished run to its final folder, in place of an earlier demo's."""
    if final.exists():
        shutil.rmtree(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    return RunFolder(shutil.move(draft, final))


def _field(folder: RunFolder) -> VisualField:
    field = read_visual_field(folder)
    assert field is not None
    return field


def _runs(seeds: int) -> str:
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def _images(fields: dict[str, VisualField]) -> int:
    return next(iter(fields.values())).images


if __name__ == "__main__":
    _train_and_test(receive_run(), sys.argv[1])
