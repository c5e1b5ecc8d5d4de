"""Read xarray assemblies (NetCDF), the form that Brain-Score keeps recordings in."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from sleepconv.brain.datasets import Recording

STIMULUS = ("stimulus_id", "image_id")


def read_netcdf(path: Path | str) -> Iterator[Recording]:
    """One recording for each region of an assembly of presentations × neuroids (× time bins, which are averaged).

    The coordinate ``stimulus_id`` (or ``image_id``) says which image was shown, ``region`` where a neuron lies and
    ``group``, if there is one, which images belong together. Presentations of one image are its repeats. The images
    lie in a folder beside the file, of the same name without ``.nc``, one picture for each stimulus and named after it.
    """
    path = Path(path)
    with _xarray().open_dataset(path) as file:
        variables = [
            variable for variable in file.data_vars.values() if {"presentation", "neuroid"} <= {*variable.dims}
        ]
        if len(variables) != 1:
            raise ValueError(f"{path} holds {len(variables)} variables over presentation × neuroid; expected one")
        assembly = variables[0].load()
    if "time_bin" in assembly.dims:
        assembly = assembly.mean("time_bin")
    yield from _recordings(path, assembly.transpose("presentation", "neuroid"))


def _recordings(path: Path, assembly: Any) -> Iterator[Recording]:
    coordinate = next((name for name in STIMULUS if name in assembly.coords), None)
    if coordinate is None or "region" not in assembly.coords:
        raise ValueError(f"{path} needs the coordinates {STIMULUS[0]} and region; it has {', '.join(assembly.coords)}")
    shown = assembly[coordinate].values.astype(str)
    names, stimulus = np.unique(shown, return_inverse=True)
    images = np.stack([_picture(path.with_suffix(""), name) for name in names])
    groups = assembly["group"].values[np.unique(shown, return_index=True)[1]] if "group" in assembly.coords else None
    regions = np.broadcast_to(assembly["region"].values.astype(str), assembly.sizes["neuroid"])
    for region in np.unique(regions):
        responses = stacked_repeats(assembly.values[:, regions == region], stimulus.ravel(), len(names))
        yield Recording(f"{path.stem}-{region}", region, images, responses, groups, names.tolist())


def stacked_repeats(values: np.ndarray, stimulus: np.ndarray, stimuli: int) -> np.ndarray:
    """Presentations × neurons as stimuli × neurons × repeats, NaN where a stimulus has fewer repeats.

    >>> stacked_repeats(np.array([[1.0], [2.0], [3.0]]), np.array([0, 1, 0]), 2)[:, 0].tolist()
    [[1.0, 3.0], [2.0, nan]]
    """
    repeats = np.bincount(stimulus, minlength=stimuli).max()
    stacked = np.full((stimuli, values.shape[1], repeats), np.nan, np.float32)
    for number in range(stimuli):
        rows = values[stimulus == number]
        stacked[number, :, : len(rows)] = rows.T
    return stacked


def _picture(folder: Path, name: str) -> np.ndarray:
    found = [path for path in (folder / name, *folder.glob(f"{name}.*")) if path.is_file()]
    if not found:
        raise FileNotFoundError(f"{folder} has no picture named {name}; an assembly needs one for each stimulus")
    try:
        from PIL import Image
    except ImportError:
        raise RuntimeError("pictures need Pillow: pip install 'sleepconv[data]'") from None
    with Image.open(found[0]) as picture:
        return np.asarray(picture.convert("RGB"))


def _xarray() -> ModuleType:
    try:
        import xarray
    except ImportError:
        raise RuntimeError("NetCDF files need xarray: pip install 'sleepconv[netcdf]'") from None
    return xarray
