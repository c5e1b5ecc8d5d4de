"""Read datasets of images and responses: the open format, and published collections in the form they are passed on."""

import re
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
FEWEST_IMAGES = 8


@dataclass(frozen=True)
class Recording:
    """Images and the responses of a region's neurons to them.

    Args:
        name: of the data.
        region: V1, V2, V4 or IT; others are reported too, but have no column in the table.
        images: uint8, grey or RGB.
        responses: (images, neurons), or (images, neurons, repeats) with NaN where a repeat is absent.
        groups: images with the same mark (frames of one movie) never stand on both sides of a split.
        image_names: one for each image, if they have any.
        neuron_names: one for each neuron, if they have any.

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
        """Refuse what does not fit together; groups become numbers."""
        check_images(self.name, self.images)
        if self.region == "behaviour":
            raise ValueError(f'{self.name}: region "behaviour" is that of label counts; a recording has V1, V4, ...')
        if self.responses.ndim not in (2, 3):
            raise ValueError(
                f"{self.name}: responses of shape {self.responses.shape}; expected images × neurons (× repeats)"
            )
        if self.responses.dtype.kind not in "fiub":
            raise ValueError(f"{self.name}: responses of type {self.responses.dtype}; expected real numbers")
        if self.groups is not None and np.ndim(self.groups) != 1:
            raise ValueError(f"{self.name}: groups of shape {np.shape(self.groups)}; expected one mark for each image")
        check_count(self.name, self.images, responses=self.responses, groups=self.groups)
        for what, names, count in [
            ("image", self.image_names, len(self.images)),
            ("neuron", self.neuron_names, self.responses.shape[1]),
        ]:
            if len(names) and len(names) != count:
                raise ValueError(f"{self.name}: {len(names)} {what} names for {count} {what}s")
        if np.isinf(self.responses).any():
            raise ValueError(f"{self.name}: some responses are infinite; absent ones are NaN")
        if self.groups is not None:
            object.__setattr__(self, "groups", np.unique(self.groups, return_inverse=True)[1].reshape(-1))

    @property
    def has_repeats(self) -> bool:
        """Whether a ceiling can be estimated."""
        return self.responses.ndim == 3 and bool(((~np.isnan(self.responses)).sum(axis=2) > 1).any())

    def mean_responses(self) -> Float[np.ndarray, "images neurons"]:
        """The mean over the repeats that are there; NaN where there is none."""
        return self.responses.astype(np.float64) if self.responses.ndim == 2 else mean_over_repeats(self.responses)

    def save(self, path: Path) -> None:
        """Write the open format, an ``.npz`` that `read_dataset` reads."""
        arrays: dict[str, Any] = {"name": self.name, "region": self.region, "images": self.images}
        arrays["responses"] = self.responses
        for key in ("groups", "image_names", "neuron_names"):
            if (values := getattr(self, key)) is not None and len(values):
                arrays[key] = np.asarray(values)
        np.savez_compressed(path, **arrays)


@dataclass(frozen=True)
class Dissimilarities:
    """Images and how differently each subject's region answers to every two of them.

    >>> rdms = np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))[None].repeat(2, axis=0)
    >>> len(Dissimilarities("mine", "IT", np.zeros((9, 8, 8), np.uint8), rdms).rdms)
    2
    """

    name: str
    region: str
    images: Pictures
    rdms: Float[np.ndarray, "subjects images images"]

    def __post_init__(self) -> None:
        """Refuse matrices that are not dissimilarities of these images."""
        check_images(self.name, self.images)
        count = len(self.images)
        if self.rdms.ndim != 3 or self.rdms.shape[1:] != (count, count) or not len(self.rdms):
            raise ValueError(f"{self.name}: matrices of shape {self.rdms.shape}; expected subjects × {count} × {count}")
        if count < FEWEST_IMAGES:
            raise ValueError(f"{self.name}: dissimilarities of {count} images; {FEWEST_IMAGES} or more can be halved")
        if not np.isfinite(self.rdms).all() or not np.allclose(self.rdms, self.rdms.swapaxes(1, 2), atol=1e-4):
            raise ValueError(f"{self.name}: dissimilarities must be finite and symmetric")
        pairs = self.rdms[:, *np.triu_indices(count, k=1)]
        if flat := np.flatnonzero(np.ptp(pairs, axis=1) == 0).tolist():
            raise ValueError(f"{self.name}: to subject {flat[0]} all images differ equally; leave it out")

    def save(self, path: Path) -> None:
        """Write the open format, an ``.npz`` that `read_dataset` reads."""
        np.savez_compressed(path, name=self.name, region=self.region, images=self.images, rdms=self.rdms)


@dataclass(frozen=True)
class LabelCounts:
    """How many people gave each label to each CIFAR-10 test image, in the official order.

    >>> LabelCounts("mine", np.array([[3, 1], [0, 4]])).counts.shape
    (2, 2)
    """

    name: str
    counts: Int[np.ndarray, "images classes"]
    region: str = "behaviour"

    def __post_init__(self) -> None:
        """Refuse what does not count; whole numbers of any size become such as can be multiplied."""
        if not np.issubdtype(self.counts.dtype, np.integer):
            raise ValueError(f"{self.name}: counts are whole numbers, not {self.counts.dtype}")
        object.__setattr__(self, "counts", self.counts.astype(np.int64))
        if self.counts.ndim != 2 or self.counts.min(initial=0) < 0 or (self.counts.sum(axis=1) < 2).any():
            raise ValueError(
                f"{self.name}: counts are images × classes, 0 or more, and each image has two labels or more"
            )


def mean_over_repeats(repeats: Float[np.ndarray, "images neurons repeats"]) -> Float[np.ndarray, "images neurons"]:
    """The mean of the repeats that are not NaN; NaN where none is.

    >>> mean_over_repeats(np.array([[[1.0, 3.0, np.nan]], [[np.nan, np.nan, np.nan]]]))
    array([[ 2.],
           [nan]])
    """
    present = ~np.isnan(repeats)
    total = np.where(present, repeats, 0).sum(axis=2, dtype=np.float64)
    return np.where(present.any(axis=2), total / np.maximum(present.sum(axis=2), 1), np.nan)


Dataset = Recording | Dissimilarities | LabelCounts


def check_images(name: str, images: np.ndarray) -> None:
    """Refuse what is not grey or RGB pictures of bytes."""
    channels = images.shape[3] if images.ndim == 4 else 1
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or channels not in (1, 3) or 0 in images.shape[1:]:
        raise ValueError(
            f"{name}: images of type {images.dtype} and shape {images.shape}; expected uint8 and "
            "images × height × width (× 1 or 3 channels)"
        )


def check_count(name: str, images: np.ndarray, **others: np.ndarray | None) -> None:
    """Refuse what does not come once per image."""
    for what, values in others.items():
        if values is not None and len(values) != len(images):
            raise ValueError(
                f"{name}: {len(images)} images came with {what} to {len(values)}; each image needs one row"
            )


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


Arrays = Mapping[str, np.ndarray]
REGIONS = ("V1", "V2", "V4", "IT")


def read_folder(folder: Path | str) -> list[Dataset]:
    """All datasets in the ``.npz`` and ``.nc`` files of a folder, in the order of the files' names.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Recording("mine", "V4", np.zeros((4, 8, 8), np.uint8), np.random.rand(4, 3)).save(folder / "mine.npz")
    >>> [recording.name for recording in read_folder(folder)]
    ['mine']
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; --data names one that holds .npz or .nc files")
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".npz", ".nc"))
    if not paths:
        raise FileNotFoundError(f"{folder} holds no .npz or .nc file; docs/brain.md describes the format")
    return [dataset for path in paths for dataset in read_dataset(path)]


def read_dataset(path: Path | str) -> list[Dataset]:
    """The datasets of one file; docs/brain.md describes the format.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mine.npz"
    >>> Recording("mine", "V4", np.zeros((4, 8, 8), np.uint8), np.random.rand(4, 3)).save(path)
    >>> read_dataset(path)[0].region
    'V4'
    """
    path = Path(path)
    if path.suffix == ".nc":
        return list(read_netcdf(path))
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except FileNotFoundError:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as NumPy arrays: it is damaged or no .npz ({error})") from None
    for key, read in READERS.items():
        if key in arrays:
            try:
                return read(path, arrays)
            except KeyError as error:
                raise ValueError(f"{path} holds {', '.join(arrays)}, but no {error.args[0]}") from None
    raise ValueError(f"{path} holds {', '.join(arrays)}; expected responses, rdms or counts (docs/brain.md)")


def _movies(path: Path, arrays: Arrays) -> list[Dataset]:
    """Several recordings of the same movie frames, with −1 for an absent repeat; a group is a movie."""
    counts = {key.removeprefix("counts_"): arrays[key] for key in sorted(arrays) if key.startswith("counts_")}
    repeats = max(values.shape[2] for values in counts.values())
    responses = np.concatenate([_padded(values, repeats) for values in counts.values()], axis=1)
    names = [f"{key}-{unit}" for key, values in counts.items() for unit in range(values.shape[1])]
    groups = movie_of_each_image(arrays["index_scale_cat_movie_frame"], len(arrays["images"]))
    return [Recording(path.stem, _region(path, arrays), arrays["images"], responses, groups, neuron_names=names)]


def movie_of_each_image(index: np.ndarray, images: int) -> np.ndarray:
    """The movie (third axis of ``index``) that each image is a frame of, in every scale and category.

    >>> movie_of_each_image(np.array([[[[0, 2], [1, -1]]]]), 3)
    array([0, 1, 0])
    """
    groups = np.full(images, -1)
    for movie in range(index.shape[2]):
        frames = np.unique(index[:, :, movie])
        frames = frames[frames >= 0]
        if (groups[frames] >= 0).any():
            raise ValueError(f"an image of movie {movie} belongs to another movie too; movies cannot be split")
        groups[frames] = movie
    if (groups < 0).any():
        raise ValueError(f"{(groups < 0).sum()} images belong to no movie")
    return groups


def _padded(counts: np.ndarray, repeats: int) -> np.ndarray:
    values = np.where(counts >= 0, counts, np.nan).astype(np.float32)
    return np.pad(values, [(0, 0), (0, 0), (0, repeats - values.shape[2])], constant_values=np.nan)


def _raw_repeats(path: Path, arrays: Arrays) -> list[Dataset]:
    """Repeats as neurons × images × repeats."""
    return [_recording(path, arrays, arrays["responses_raw"].swapaxes(0, 1))]


def _responses(path: Path, arrays: Arrays) -> list[Dataset]:
    return [_recording(path, arrays, arrays["responses"])]


def _recording(path: Path, arrays: Arrays, responses: np.ndarray) -> Recording:
    names = {key: arrays[key].tolist() for key in ("image_names", "neuron_names") if key in arrays}
    name = _name(path, arrays)
    return Recording(name, _region(path, arrays), arrays["images"], responses, arrays.get("groups"), **names)


def _rdms(path: Path, arrays: Arrays) -> list[Dataset]:
    name = _name(path, arrays)
    return [Dissimilarities(name, _region(path, arrays), arrays["images"], arrays["rdms"])]


def _ninety_two_objects(path: Path, arrays: Arrays) -> list[Dataset]:
    """92 object images: one macaque matrix, four people in two sessions each, fifteen people in two regions."""
    people = [name.split("|")[1].strip() for name in arrays["human_IT_session_names"]]
    sessions = arrays["human_IT_session_rdms"]
    human = np.stack([sessions[[p == person for p in people]].mean(axis=0) for person in dict.fromkeys(people)])
    sets = [
        ("macaque-92", "IT", arrays["monkey_IT_rdm"][None]),
        ("human-92", "IT", human),
        ("human-92-second-study", "IT", arrays["cichy_IT_rdms"]),
        ("human-92-second-study-early", "early visual", arrays["cichy_EVC_rdms"]),
    ]
    return [Dissimilarities(name, region, arrays["images"], rdms) for name, region, rdms in sets]


def _counts(path: Path, arrays: Arrays) -> list[Dataset]:
    return [LabelCounts(_name(path, arrays), arrays["counts"])]


def _name(path: Path, arrays: Arrays) -> str:
    return _text(path, arrays, "name", kinds="Uiu") if "name" in arrays else path.stem


def _text(path: Path, arrays: Arrays, key: str, *, kinds: str = "U") -> str:
    """A string, which may lie in an array of one."""
    value = np.asarray(arrays[key])
    if value.size != 1 or value.dtype.kind not in kinds:
        raise ValueError(f"{path}: {key} is one string, not {value.tolist()!r}")
    return str(value.item())


def _region(path: Path, arrays: Arrays) -> str:
    """What the file says, else what its name says."""
    if "region" in arrays:
        region = _text(path, arrays, "region")
        return region.upper() if region.upper() in REGIONS else region
    found = re.search(r"(?:^|[_-])(v1|v2|v4|it)(?:[_-]|$)", path.stem.lower())
    if not found:
        raise ValueError(f'{path} names no region; add region="V1" (V2, V4, IT), or name the file like mine_v1.npz')
    return found[1].upper()


READERS: dict[str, Callable[[Path, Arrays], list[Dataset]]] = {
    "index_scale_cat_movie_frame": _movies,
    "responses_raw": _raw_repeats,
    "responses": _responses,
    "rdms": _rdms,
    "monkey_IT_rdm": _ninety_two_objects,
    "counts": _counts,
}
