"""Accuracy over the visual field: test images shown at every place, one after the other."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from sleepconv.experiments.data import Task, TensorSource, Translate, load_task
from sleepconv.experiments.runs import RunFolder
from sleepconv.experiments.training import evaluate
from sleepconv.files import parse_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RECORD = "visual_field.json"
_FARTHEST, _SPACING = 8, 2
_IMAGES = 500


@dataclass(frozen=True)
class VisualField:
    """Top-1 accuracy in percent for every position of the images' upper left corner.

    Attributes:
        rows: the corners' rows.
        columns: the corners' columns.
        accuracy: one list per row.
        images: number of test images shown at each place.
        seen: (rows, columns) at which training images were shown, if known.
    """

    rows: list[int]
    columns: list[int]
    accuracy: list[list[float]]
    images: int
    seen: tuple[list[int], list[int]] | None = None

    def by_column(self) -> dict[int, float]:
        """Average over the rows.

        >>> VisualField([0, 1], [0, 12], [[90.0, 10.0], [80.0, 20.0]], images=5).by_column()
        {0: 85.0, 12: 15.0}
        """
        return {column: float(mean) for column, mean in zip(self.columns, np.mean(self.accuracy, axis=0), strict=True)}

    def write(self, folder: RunFolder) -> None:
        """Write the map to a run's folder."""
        folder.write_json(_RECORD, asdict(self))


def read_visual_field(folder: RunFolder) -> VisualField | None:
    """Read the map that `VisualField.write` wrote; None if there is none."""
    file = folder.path / _RECORD
    if not file.is_file():
        return None
    try:
        return VisualField(**parse_json(file.read_text()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file} is not a map of accuracy: {error}; remove it to measure it again") from error


def measure_visual_field(model: nn.Module, task: Task, *, images: int = _IMAGES) -> VisualField | None:
    """Measure accuracy at every place where test images fit, or shifted by up to 8 pixels if they fill the field.

    Returns:
        the map, or None for images that are not in memory.

    >>> from sleepconv.models import three_layers
    >>> field = measure_visual_field(three_layers(), load_task("digits"), images=10)
    >>> field.rows, field.columns[-1]
    ([0, 1, 2, 3, 4], 16)
    """
    source = task.evaluation
    if not isinstance(source, TensorSource) or not isinstance(source.transform, Translate):
        return None
    still = source.transform
    room = [full - part for full, part in zip(still.size, source.images.image_size, strict=True)]
    places = [_places(spare, int(corners[0])) for spare, corners in zip(room, (still.rows, still.columns), strict=True)]
    chosen = np.linspace(0, len(source) - 1, min(images, len(source))).round().astype(int)
    pixels, labels = source.images.take(torch.from_numpy(chosen))

    def accuracy(row: int, column: int) -> float:
        place = Translate([row], [column], size=still.size, statistics=still.statistics)
        return evaluate(model, [(place(pixels, torch.zeros(len(pixels), 2)), labels)]).means()["top1"]

    rows, columns = places
    return VisualField(rows, columns, [[accuracy(row, column) for column in columns] for row in rows], len(chosen))


def visual_field_of(folder: RunFolder, data_dir: str | PathLike[str] | None = None) -> VisualField | None:
    """Read a run's map, or measure and write it if the weights and the data are available; else None."""
    if (known := read_visual_field(folder)) is not None:
        return known
    run = folder.recipe()
    try:
        model = folder.load_model()
        task = load_task(run.dataset, data_dir=data_dir, tuning=run.tuning)
    except (FileNotFoundError, ImportError):
        return None
    field = measure_visual_field(model, task)
    if field is not None:
        try:
            field.write(folder)
        except OSError as error:
            warnings.warn(f"the map of accuracy could not be written: {error}", stacklevel=2)
    return field


def mean_of(fields: Sequence[VisualField]) -> VisualField:
    """Average the maps of runs that were tested at the same places."""
    if len({(tuple(field.rows), tuple(field.columns)) for field in fields}) != 1:
        raise ValueError("maps of accuracy must have the same places to be averaged")
    return replace(fields[0], accuracy=np.mean([field.accuracy for field in fields], axis=0).tolist())


def draw_visual_field(axes: Axes, field: VisualField, *, numbers: bool = False) -> Any:
    """Draw the map, with a frame around the places seen in training; return what a colour bar needs."""
    columns, rows = np.arange(len(field.columns)), np.arange(len(field.rows))
    mesh = axes.pcolormesh(columns, rows, field.accuracy, vmin=0, vmax=100, cmap="viridis", antialiased=False)
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
    for places, ticks in ((field.columns, axes.set_xticks), (field.rows, axes.set_yticks)):
        shown = [place for place in range(len(places)) if place % 4 == 0]
        ticks(shown, [f"{places[place]}".replace("-", "−") for place in shown])
    if field.seen is not None:
        rows_seen, columns_seen = field.seen
        _frame(axes, _indices(field.columns, columns_seen), _indices(field.rows, rows_seen))
    for row, column in np.ndindex(len(rows), len(columns)) if numbers else ():
        value = field.accuracy[row][column]
        colour = "white" if value < 60 else "black"
        axes.text(column, row, f"{value:.0f}", color=colour, ha="center", va="center", fontsize=6.5)
    return mesh


def _places(spare: int, still: int) -> list[int]:
    return list(range(spare + 1)) if spare > 0 else list(range(still - _FARTHEST, still + _FARTHEST + 1, _SPACING))


def _indices(places: list[int], seen: list[int]) -> list[int]:
    return [places.index(place) for place in seen]


def _frame(axes: Axes, columns: list[int], rows: list[int]) -> None:
    left, right, top, bottom = columns[0] - 0.5, columns[-1] + 0.5, rows[0] - 0.5, rows[-1] + 0.5
    axes.plot([left, right, right, left, left], [top, top, bottom, bottom, top], color="#d55e00", lw=2, clip_on=False)
