"""What networks are compared with: neurons' responses, dissimilarities of images, people's labels; and their files."""

import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped, UInt8

Pictures = UInt8[np.ndarray, "images height width ..."]

_REGIONS = ("V1", "V2", "V4", "IT")
_FEWEST_IMAGES = 8


@dataclass(frozen=True, eq=False)
class Recording:
    """Images and the responses of a region's neurons to them.

    Args:
        name: the dataset's name.
        region: V1, V2, V4 or IT; other regions are reported too, but have no column in the table.
        images: uint8, grey or RGB.
        responses: (images, neurons), or (images, neurons, repeats) with NaN for a missing repeat.
        groups: images with the same label (frames of one movie) are never split between training and test.
        image_names: one name for each image, if known.
        neuron_names: one name for each neuron, if known.

    >>> pictures, responses = np.zeros((4, 8, 8), np.uint8), np.random.rand(4, 3, 2)
    >>> Recording("mine", "V4", pictures, responses).mean_responses().shape
    (4, 3)
    """

    name: str
    region: str
    images: Pictures
    responses: Float[np.ndarray, "images neurons ..."]
    groups: Shaped[np.ndarray, "images"] | None = None
    image_names: Sequence[str] = field(default=())
    neuron_names: Sequence[str] = field(default=())

    def __post_init__(self) -> None:
        """Check that everything fits together, and number the groups."""
        _check_images(self.name, self.images)
        shape, dtype = self.responses.shape, self.responses.dtype
        if self.region == "behaviour":
            raise ValueError(
                f'{self.name}: region "behaviour" is reserved for label counts; a recording has V1, V4, ...'
            )
        if len(shape) not in (2, 3):
            raise ValueError(f"{self.name}: `responses` must be images × neurons (× repeats), got shape {shape}")
        if dtype.kind not in "fiub":
            raise ValueError(f"{self.name}: `responses` must be real numbers, got {dtype}")
        if self.groups is not None and np.ndim(self.groups) != 1:
            raise ValueError(f"{self.name}: `groups` must have one label per image, got shape {np.shape(self.groups)}")
        for what, values, count in [
            ("`responses`", self.responses, len(self.images)),
            ("`groups`", self.groups, len(self.images)),
            ("`image_names`", self.image_names if len(self.image_names) else None, len(self.images)),
            ("`neuron_names`", self.neuron_names if len(self.neuron_names) else None, shape[1]),
        ]:
            if values is not None and len(values) != count:
                raise ValueError(f"{self.name}: {what} must have length {count}, got {len(values)}")
        if np.isinf(self.responses).any():
            raise ValueError(f"{self.name}: `responses` contains infinity; use NaN for missing responses")
        if self.groups is not None:
            object.__setattr__(self, "groups", np.unique(self.groups, return_inverse=True)[1].reshape(-1))

    @property
    def has_repeats(self) -> bool:
        """Whether some image was shown more than once, so that a ceiling can be estimated."""
        return self.responses.ndim == 3 and bool(((~np.isnan(self.responses)).sum(axis=2) > 1).any())

    def mean_responses(self) -> Float[np.ndarray, "images neurons"]:
        """Average over the repeats that are present; NaN where there is none."""
        return self.responses.astype(np.float64) if self.responses.ndim == 2 else mean_over_repeats(self.responses)

    def save(self, path: Path) -> None:
        """Write an ``.npz`` file that `read_dataset` reads."""
        _save(path, self)


@dataclass(frozen=True, eq=False)
class Dissimilarities:
    """Images and, for each subject, how differently a region responds to every two of them.

    >>> rdms = np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))[None].repeat(2, axis=0)
    >>> len(Dissimilarities("mine", "IT", np.zeros((9, 8, 8), np.uint8), rdms).rdms)
    2
    """

    name: str
    region: str
    images: Pictures
    rdms: Float[np.ndarray, "subjects images images"]

    def __post_init__(self) -> None:
        """Check that the matrices are dissimilarities of these images."""
        _check_images(self.name, self.images)
        count = len(self.images)
        if self.rdms.ndim != 3 or self.rdms.shape[1:] != (count, count) or not len(self.rdms):
            raise ValueError(f"{self.name}: `rdms` must be subjects × {count} × {count}, got shape {self.rdms.shape}")
        if count < _FEWEST_IMAGES:
            raise ValueError(f"{self.name}: dissimilarities need at least {_FEWEST_IMAGES} images, got {count}")
        if not np.isfinite(self.rdms).all() or not np.allclose(self.rdms, self.rdms.swapaxes(1, 2), atol=1e-4):
            raise ValueError(f"{self.name}: `rdms` must be finite and symmetric")
        pairs = self.rdms[:, *np.triu_indices(count, k=1)]
        if constant := np.flatnonzero(np.ptp(pairs, axis=1) == 0).tolist():
            raise ValueError(f"{self.name}: all dissimilarities of subject {constant[0]} are equal; leave it out")

    def save(self, path: Path) -> None:
        """Write an ``.npz`` file that `read_dataset` reads."""
        _save(path, self)


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """How many people gave each label to each CIFAR-10 test image, in the official order.

    >>> LabelCounts("mine", np.array([[3, 1], [0, 4]])).counts.shape
    (2, 2)
    """

    name: str
    counts: Int[np.ndarray, "images classes"]
    region: str = "behaviour"

    def __post_init__(self) -> None:
        """Check the counts, and widen small integers so that products do not overflow."""
        if not np.issubdtype(self.counts.dtype, np.integer):
            raise ValueError(f"{self.name}: `counts` must be integers, got {self.counts.dtype}")
        object.__setattr__(self, "counts", self.counts.astype(np.int64))
        if self.counts.ndim != 2 or self.counts.min(initial=0) < 0 or (self.counts.sum(axis=1) < 2).any():
            raise ValueError(
                f"{self.name}: `counts` must be images × classes, non-negative, with at least two labels per image"
            )

    def save(self, path: Path) -> None:
        """Write an ``.npz`` file that `read_dataset` reads."""
        _save(path, self)


BrainDataset = Recording | Dissimilarities | LabelCounts


def mean_over_repeats(repeats: Float[np.ndarray, "images neurons repeats"]) -> Float[np.ndarray, "images neurons"]:
    """Average over the repeats that are not NaN; NaN where all are.

    >>> mean_over_repeats(np.array([[[1.0, 3.0, np.nan]], [[np.nan, np.nan, np.nan]]]))
    array([[ 2.],
           [nan]])
    """
    present = ~np.isnan(repeats)
    total = np.where(present, repeats, 0).sum(axis=2, dtype=np.float64)
    return np.where(present.any(axis=2), total / np.maximum(present.sum(axis=2), 1), np.nan)


def read_folder(folder: Path | str) -> list[BrainDataset]:
    """Read all ``.npz`` and ``.nc`` files of a folder, in alphabetical order.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Recording("mine", "V4", np.zeros((4, 8, 8), np.uint8), np.random.rand(4, 3)).save(folder / "mine.npz")
    >>> [recording.name for recording in read_folder(folder)]
    ['mine']
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; expected one with .npz or .nc files")
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".npz", ".nc"))
    if not paths:
        raise FileNotFoundError(f"{folder} has no .npz or .nc file; docs/brain.md describes the format")
    return [dataset for path in paths for dataset in read_dataset(path)]


def read_dataset(path: Path | str) -> list[BrainDataset]:
    """Read the datasets of one ``.npz`` or ``.nc`` file; docs/brain.md describes the format.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mine.npz"
    >>> Recording("mine", "V4", np.zeros((4, 8, 8), np.uint8), np.random.rand(4, 3)).save(path)
    >>> read_dataset(path)[0].region
    'V4'
    """
    path = Path(path)
    return list(_read_netcdf(path)) if path.suffix == ".nc" else [_read_npz(path)]


_Arrays = Mapping[str, np.ndarray]


def _save(path: Path, dataset: BrainDataset) -> None:
    arrays: dict[str, Any] = {key: value for key, value in vars(dataset).items() if value is not None and len(value)}
    np.savez_compressed(path, **arrays)


def _read_npz(path: Path) -> BrainDataset:
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except FileNotFoundError:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as NumPy arrays: damaged, or not an .npz file ({error})") from None
    kind = next((key for key in _KINDS if key in arrays), None)
    if kind is None:
        raise ValueError(f"{path} has {', '.join(arrays)}; expected responses, rdms or counts (see docs/brain.md)")
    make, known = _KINDS[kind]
    if unknown := [key for key in arrays if key not in known]:
        warnings.warn(f"{path}: ignored {', '.join(unknown)}; expected only {', '.join(known)}", stacklevel=3)
    if "images" in known and "images" not in arrays:
        raise ValueError(f"{path} has {', '.join(arrays)}, but no images")
    return make(path, arrays)


def _recording(path: Path, arrays: _Arrays) -> Recording:
    names = {key: arrays[key].tolist() for key in ("image_names", "neuron_names") if key in arrays}
    region = _region(path, arrays)
    return Recording(_name(path, arrays), region, arrays["images"], arrays["responses"], arrays.get("groups"), **names)


def _dissimilarities(path: Path, arrays: _Arrays) -> Dissimilarities:
    return Dissimilarities(_name(path, arrays), _region(path, arrays), arrays["images"], arrays["rdms"])


def _label_counts(path: Path, arrays: _Arrays) -> LabelCounts:
    return LabelCounts(_name(path, arrays), arrays["counts"])


# For the array that tells the kind of a dataset: how to make it, and all arrays that its file may have.
_KINDS: dict[str, tuple[Callable[[Path, _Arrays], BrainDataset], tuple[str, ...]]] = {
    "responses": (
        _recording,
        ("images", "responses", "region", "groups", "name", "image_names", "neuron_names"),
    ),
    "rdms": (_dissimilarities, ("images", "rdms", "region", "name")),
    "counts": (_label_counts, ("counts", "region", "name")),
}


def _name(path: Path, arrays: _Arrays) -> str:
    return _text(path, arrays, "name", kinds="Uiu") if "name" in arrays else path.stem


def _region(path: Path, arrays: _Arrays) -> str:
    """Take the region from the file's array, else from the file's name."""
    if "region" in arrays:
        region = _text(path, arrays, "region")
        return region.upper() if region.upper() in _REGIONS else region
    found = re.search(r"(?:^|[_-])(v1|v2|v4|it)(?:[_-]|$)", path.stem.lower())
    if not found:
        raise ValueError(f'{path} has no region; add region="V1" (V2, V4, IT), or name the file like mine_v1.npz')
    return found[1].upper()


def _text(path: Path, arrays: _Arrays, key: str, *, kinds: str = "U") -> str:
    """Read a string, which may be in an array of length one."""
    value = np.asarray(arrays[key])
    if value.size != 1 or value.dtype.kind not in kinds:
        raise ValueError(f"{path}: `{key}` must be one string, got {value.tolist()!r}")
    return str(value.item())


def _check_images(name: str, images: np.ndarray) -> None:
    channels = images.shape[3] if images.ndim == 4 else 1
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or channels not in (1, 3) or 0 in images.shape[1:]:
        raise ValueError(
            f"{name}: `images` must be uint8 of shape images × height × width (× 1 or 3 channels), "
            f"got {images.dtype} of shape {images.shape}"
        )


_STIMULUS = ("stimulus_id", "image_id")


def _read_netcdf(path: Path) -> Iterator[Recording]:
    """Yield one recording for each region of an xarray assembly of presentations × neuroids (× time bins)."""
    with _xarray().open_dataset(path) as file:
        variables = [
            variable for variable in file.data_vars.values() if {"presentation", "neuroid"} <= {*variable.dims}
        ]
        if len(variables) != 1:
            raise ValueError(f"{path} must have one variable over presentation × neuroid, got {len(variables)}")
        assembly = variables[0].load()
    if "time_bin" in assembly.dims:
        assembly = assembly.mean("time_bin")
    assembly = assembly.transpose("presentation", "neuroid")
    coordinate = next((name for name in _STIMULUS if name in assembly.coords), None)
    if coordinate is None or "region" not in assembly.coords:
        raise ValueError(f"{path} needs the coordinates {_STIMULUS[0]} and region, got {', '.join(assembly.coords)}")
    names, first, stimulus = np.unique(assembly[coordinate].values.astype(str), return_index=True, return_inverse=True)
    images = np.stack([_picture(path.with_suffix(""), name) for name in names])
    groups = assembly["group"].values[first] if "group" in assembly.coords else None
    regions = np.broadcast_to(assembly["region"].values.astype(str), assembly.sizes["neuroid"])
    for region in np.unique(regions):
        responses = _stack_repeats(assembly.values[:, regions == region], stimulus.ravel(), len(names))
        yield Recording(f"{path.stem}-{region}", region, images, responses, groups, names.tolist())


def _stack_repeats(values: np.ndarray, stimulus: np.ndarray, stimuli: int) -> np.ndarray:
    """Turn presentations × neurons into stimuli × neurons × repeats, with NaN for missing repeats.

    >>> _stack_repeats(np.array([[1.0], [2.0], [3.0]]), np.array([0, 1, 0]), 2)[:, 0].tolist()
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
        raise RuntimeError("pictures need Pillow: pip install pillow") from None
    with Image.open(found[0]) as picture:
        return np.asarray(picture.convert("RGB"))


def _xarray() -> ModuleType:
    try:
        import xarray
    except ImportError:
        raise RuntimeError("NetCDF files need xarray: pip install xarray netCDF4") from None
    return xarray
