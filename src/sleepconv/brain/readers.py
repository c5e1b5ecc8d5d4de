"""Read datasets of images and responses: the open format, and published collections in the form they are passed on."""

import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from sleepconv.brain.datasets import Dataset, Dissimilarities, LabelCounts, Recording
from sleepconv.brain.netcdf import read_netcdf

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
