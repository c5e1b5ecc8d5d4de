"""WebDataset tar shards: pairs KEY.jpg and KEY.cls in plain tar files, read in place and nearly in order."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64

from sleepconv.experiments.data.description import read_lines
from sleepconv.experiments.data.encoded import EncodedImages
from sleepconv.experiments.data.imagenet import imagenet_folders
from sleepconv.experiments.data.images import check_labels
from sleepconv.experiments.data.description import StrPath, replaced_when_done
from sleepconv.mapped import save_array
from sleepconv.experiments.data.images import random_stream

IMAGE_SUFFIXES = ("jpg", "jpeg", "png")
SHARDS_MIXED = 16
LISTING = "shards.json"
OFFICIAL = {"train": 1_281_167, "val": 50_000}


class Shards:
    """Images in tar shards. An epoch goes through the shards in random order, ``SHARDS_MIXED`` at a time.

    Args:
        paths: the tar files.
        classes: the class names; by default from ``classes.txt`` beside the shards.
        index_dir: where to remember what is in the shards; by default it is read each time.

    >>> import tempfile
    >>> from sleepconv.experiments.data import ImageFolders
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "images" / "cat").mkdir(parents=True)
    >>> _ = (folder / "images" / "cat" / "1.jpg").write_bytes(b"a picture")
    >>> write_shards({"train": ImageFolders(folder / "images")}, folder / "shards")
    1
    >>> Shards(list((folder / "shards").glob("*.tar"))).read(0)
    b'a picture'
    """

    def __init__(
        self, paths: list[Path], classes: tuple[str, ...] | None = None, *, index_dir: Path | None = None
    ) -> None:
        if not paths:
            raise FileNotFoundError("no tar shards were given; they are named like train-000000.tar")
        self.paths = sorted(paths)
        self.classes = _classes_beside(self.paths[0]) if classes is None else classes
        index = _index(self.paths, index_dir)
        self.shard, self.offset, self.size, self.labels, self._keys = (
            index[name] for name in ("shard", "offset", "size", "labels", "keys")
        )
        check_labels(torch.from_numpy(self.labels), len(self.classes), f"the shards in {self.paths[0].parent}")

    def name(self, row: int) -> str:
        """The shard and the key of an image."""
        return f"{self.paths[self.shard[row]]}:{self._keys[row].decode()}"

    def read(self, row: int) -> bytes:
        """The content of an image, straight from its place in the shard."""
        with self.paths[self.shard[row]].open("rb") as file:
            file.seek(int(self.offset[row]))
            return file.read(int(self.size[row]))

    def order(self, rows: Int64[np.ndarray, "images"], random: np.random.Generator) -> np.ndarray:
        """Shards in random order, images mixed within groups of shards, so that reading stays local."""
        group = random.permutation(len(self.paths))[self.shard[rows]] // SHARDS_MIXED
        return np.lexsort((random.random(len(rows)), group))


def write_shards(
    parts: Mapping[str, EncodedImages], folder: Path, *, images_per_shard: int = 1000, seed: int = 0
) -> int:
    """Write image files, shuffled by seed, as ``folder/PART-000000.tar`` …; return how many shards.

    The folder appears when all of it is written, with the class names in ``classes.txt`` and the number of images in
    each shard in ``shards.json``.

    >>> import tempfile
    >>> from sleepconv.experiments.data import ImageFolders
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in range(3):
    ...     (folder / "images" / "cat").mkdir(parents=True, exist_ok=True)
    ...     _ = (folder / "images" / "cat" / f"{number}.jpg").write_bytes(b"a picture")
    >>> write_shards({"train": ImageFolders(folder / "images")}, folder / "shards", images_per_shard=2)
    2
    """
    if images_per_shard < 1:
        raise ValueError(f"a shard holds at least one image, not {images_per_shard}")
    if folder.exists():
        raise FileExistsError(f"{folder} is already there; remove it or write the shards elsewhere")
    written: dict[str, int] = {}
    with replaced_when_done(folder) as new:
        for part, encoded in parts.items():
            (new / "classes.txt").write_text("\n".join(encoded.classes) + "\n")
            order = random_stream("shards", seed=seed).permutation(len(encoded.labels))
            for number, first in enumerate(range(0, len(order), images_per_shard)):
                rows = order[first : first + images_per_shard].tolist()
                path = new / f"{part}-{number:06d}.tar"
                _write_shard(path, encoded, rows)
                written[path.name] = len(rows)
        (new / LISTING).write_text(json.dumps(written, indent=1) + "\n")
    return len(written)


def imagenet_shards(folder: Path, *, train: bool, complete: bool = True, index_dir: Path | None = None) -> Shards:
    """ImageNet from the shards ``train-*.tar`` or ``val-*.tar`` of a folder, all of them.

    Every shard that the folder's ``shards.json`` lists must be there with its images. Shards of another writer, without
    that list, must hold the official number of images; ``complete=False`` accepts fewer.
    """
    part = "train" if train else "val"
    paths = list(folder.glob(f"{part}-*.tar"))
    if not paths:
        raise FileNotFoundError(f"{folder} has no shard {part}-*.tar; copy the shards there, or move the folder away")
    shards = Shards(paths, index_dir=index_dir)
    counts = np.bincount(shards.shard, minlength=len(shards.paths)).tolist()
    found = {path.name: count for path, count in zip(shards.paths, counts, strict=True)}
    if (folder / LISTING).is_file():
        _check_listed(folder / LISTING, part, found)
    elif complete and len(shards.labels) != OFFICIAL[part]:
        raise ValueError(
            f"the {len(found)} shards {folder / part}-*.tar hold {len(shards.labels):,} images, but ImageNet has "
            f"{OFFICIAL[part]:,}: some are missing; place them there (complete=False accepts fewer)"
        )
    return shards


def write_imagenet_shards(folder: StrPath, data_dir: StrPath | None = None, *, complete: bool = True) -> str:
    """Write ImageNet's class folders as shards and say what to do with them."""
    parts = {
        "train": imagenet_folders(data_dir, train=True, complete=complete),
        "val": imagenet_folders(data_dir, train=False, complete=complete),
    }
    count = write_shards(parts, Path(folder))
    return f"{count} shards are in {folder}; as DATA_DIR/imagenet-shards they serve where there is no imagenet/"


def _check_listed(listing: Path, part: str, found: dict[str, int]) -> None:
    """Refuse shards that are not those of the list, with the first of them and what to do."""
    try:
        counts = json.loads(listing.read_text())
        listed = {name: int(count) for name, count in counts.items() if name.startswith(f"{part}-")}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{listing} does not say how many images each shard has ({error}); copy it again") from error
    if missing := sorted(listed.keys() - found.keys()):
        raise FileNotFoundError(
            f"{listing.parent} lacks {len(missing)} of the {len(listed)} {part} shards that {listing.name} lists, "
            f"first {missing[0]}; copy them again (or take them off that list to do without them)"
        )
    if wrong := sorted(name for name, count in found.items() if listed.get(name) != count):
        raise ValueError(
            f"{listing.parent / wrong[0]} has {found[wrong[0]]} images, but {listing.name} lists "
            f"{listed.get(wrong[0], 'no such shard')}; copy it again, or move away what does not belong there"
        )


def _write_shard(path: Path, encoded: EncodedImages, rows: list[int]) -> None:
    with tarfile.open(path, "w:") as tar:
        for row in rows:
            _add(tar, f"{row:08d}.jpg", encoded.read(row))
            _add(tar, f"{row:08d}.cls", str(encoded.labels[row]).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def _index(paths: list[Path], index_dir: Path | None) -> dict[str, np.ndarray]:
    if index_dir is None:
        return _scan(paths)
    facts = "\n".join(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in paths)
    folder = index_dir / f"shards-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        with replaced_when_done(folder, keep=True) as new:
            for name, values in _scan(paths).items():
                save_array(new / f"{name}.npy", values)
    return {path.stem: np.load(path, allow_pickle=False) for path in folder.glob("*.npy")}


def _scan(paths: list[Path]) -> dict[str, np.ndarray]:
    rows = [(number, *row) for number, path in enumerate(paths) for row in _members(path)]
    if not rows:
        raise ValueError(f"the shards in {paths[0].parent} hold no images")
    shard, keys, offset, size, labels = zip(*rows, strict=True)
    numbers = {"shard": shard, "offset": offset, "size": size, "labels": labels}
    return {"keys": np.array([key.encode() for key in keys])} | {
        name: np.array(values, dtype=np.int64) for name, values in numbers.items()
    }


def _members(path: Path) -> list[tuple[str, int, int, int]]:
    """Key, offset, size and label of every image in a shard."""
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                key, _, suffix = member.name.rpartition(".")
                if suffix.lower() in IMAGE_SUFFIXES:
                    images[key] = (member.offset_data, member.size)
                elif suffix == "cls" and (content := tar.extractfile(member)):
                    labels[key] = int(content.read())
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a whole, uncompressed WebDataset shard ({error})") from error
    if images.keys() != labels.keys():
        lonely = min(images.keys() ^ labels.keys())
        raise ValueError(f"{path} is truncated or incomplete: {lonely!r} lacks its image or its .cls label")
    return [(key, *images[key], labels[key]) for key in images]


def _classes_beside(path: Path) -> tuple[str, ...]:
    listing = path.parent / "classes.txt"
    if not listing.is_file():
        raise FileNotFoundError(f"{listing} is missing; it names the classes, one a line, in the order of the labels")
    return tuple(line.strip() for line in read_lines(listing) if line.strip())
