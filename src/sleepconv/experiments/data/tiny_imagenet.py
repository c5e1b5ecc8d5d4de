"""TinyImageNet from its official folder, decoded once into a memory-mapped cache."""

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from sleepconv.experiments.data.decoding import Decoders, OnCorrupt, decode
from sleepconv.experiments.data.description import (
    INCOMPLETE,
    Dataset,
    Download,
    StrPath,
    cache_directory,
    data_directory,
    read_lines,
    require_file,
    writing_to,
)
from sleepconv.experiments.data.images import Images
from sleepconv.files import atomic_folder
from sleepconv.mapped import mapped_array, save_array

IMAGE_SIZE = (64, 64)


@dataclass(frozen=True)
class _Listing:
    """Image files, not yet read."""

    paths: list[Path]
    labels: list[int]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)


def tiny_imagenet(
    data_dir: StrPath | None = None,
    *,
    train: bool = True,
    complete: bool = True,
    on_corrupt: OnCorrupt = "error",
) -> Images:
    """Read TinyImageNet: 100,000 training images, or the 10,000 official validation images as the test set.

    The first call decodes the files of ``DATA_DIR/tiny-imagenet-200`` into one uint8 array (1.2 GB for
    training), which later calls map into memory. ``complete=False`` accepts fewer classes and images than
    the official ones.

    >>> tiny_imagenet("no/such/folder")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    FileNotFoundError: there is no such file; run `sleepconv data get tiny-imagenet`
    """
    listing = _list_files(data_dir, train=train, complete=complete)
    root = data_directory(data_dir)
    fingerprint = _fingerprint(root / TINY_IMAGENET.folder, listing, on_corrupt)
    cache = cache_directory(root) / f"tiny-imagenet-{'train' if train else 'val'}-{fingerprint}"
    if not cache.is_dir():
        _decode_into(cache, listing, on_corrupt)
    # Copy-on-write, because torch wants a writable array; nothing is ever written to the file.
    pixels = torch.from_numpy(np.load(cache / "pixels.npy", mmap_mode="c"))
    _warn_of_skipped(cache / "skipped.txt")
    return Images(pixels, torch.from_numpy(np.load(cache / "labels.npy")), listing.classes)


def _list_files(data_dir: StrPath | None = None, *, train: bool = True, complete: bool = True) -> _Listing:
    folder = data_directory(data_dir) / TINY_IMAGENET.folder
    wnids, classes = _class_names(folder, complete=complete)
    files = (_list_training if train else _list_validation)(folder, wnids)
    official = TINY_IMAGENET.train_images if train else TINY_IMAGENET.test_images
    if complete and len(files) != official:
        raise ValueError(
            f"{folder / ('train' if train else 'val')} has {len(files):,} images, but TinyImageNet has {official:,}; "
            f"run `sleepconv data check tiny-imagenet`, or {INCOMPLETE}"
        )
    return _Listing([path for path, _ in files], [label for _, label in files], classes)


TINY_IMAGENET = Dataset(
    name="tiny-imagenet",
    title="TinyImageNet",
    read=tiny_imagenet,
    list_files=_list_files,
    train_images=100_000,
    test_images=10_000,
    held_out=10_000,
    folder="tiny-imagenet-200",
    downloads=(
        Download(
            "tiny-imagenet-200.zip",
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "90528d7ca1a48142e341f4ef8d21d0de",
        ),
    ),
)


def _class_names(folder: Path, *, complete: bool = True) -> tuple[list[str], tuple[str, ...]]:
    """Return the class identifiers of ``wnids.txt``, sorted, and their names from ``words.txt``."""
    wnids = sorted(" ".join(read_lines(require_file(folder / "wnids.txt", TINY_IMAGENET.name))).split())
    if len(set(wnids)) != len(wnids) or not wnids or (complete and len(wnids) != 200):
        accepted = f"; {INCOMPLETE}" if wnids and len(set(wnids)) == len(wnids) else ""
        raise ValueError(f"{folder / 'wnids.txt'} lists {len(set(wnids))} classes, but TinyImageNet has 200{accepted}")
    words = {}
    if (folder / "words.txt").is_file():
        words = dict(line.split("\t", 1) for line in read_lines(folder / "words.txt") if "\t" in line)
    return wnids, tuple(words.get(wnid, wnid).split(",")[0] for wnid in wnids)


def _list_training(folder: Path, wnids: list[str]) -> list[tuple[Path, int]]:
    """Return the files ``train/WNID/images/*.JPEG`` with their labels."""
    files: list[tuple[Path, int]] = []
    for label, wnid in enumerate(wnids):
        images = folder / "train" / wnid / "images"
        found = sorted(images.glob("*.JPEG")) if images.is_dir() else []
        if not found:
            raise FileNotFoundError(
                f"{images} has no images, but wnids.txt lists the class {wnid}; "
                f"move {folder} away and run `sleepconv data get tiny-imagenet`"
            )
        files += [(path, label) for path in found]
    return files


def _list_validation(folder: Path, wnids: list[str]) -> list[tuple[Path, int]]:
    """Return the files ``val/images/*.JPEG`` with their labels from ``val_annotations.txt``."""
    annotations = require_file(folder / "val" / "val_annotations.txt", TINY_IMAGENET.name)
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    files: list[tuple[Path, int]] = []
    for number, line in enumerate(read_lines(annotations), start=1):
        fields = line.split("\t")
        if len(fields) < 2 or fields[1] not in labels or Path(fields[0]).name != fields[0]:
            raise ValueError(f"line {number} of {annotations} does not give a file and a known class: {line[:60]!r}")
        files.append((folder / "val" / "images" / fields[0], labels[fields[1]]))
    missing = [path for path, _ in files if not path.is_file()]
    if missing or not files:
        raise FileNotFoundError(
            f"{folder / 'val' / 'images'} lacks {len(missing)} of the {len(files)} images that "
            f"val_annotations.txt lists{f', first {missing[0].name}' if missing else ''}; if val/ was sorted "
            f"into class folders, move {folder} away and run `sleepconv data get tiny-imagenet`"
        )
    return files


def _fingerprint(folder: Path, listing: _Listing, on_corrupt: OnCorrupt) -> str:
    """Identify a list of files, so that a cache made from other files is never used."""
    lines = (f"{path.relative_to(folder)} {label}" for path, label in zip(listing.paths, listing.labels, strict=True))
    return hashlib.sha256("\n".join([on_corrupt, *lines]).encode()).hexdigest()[:12]


def _decode_into(cache: Path, listing: _Listing, on_corrupt: OnCorrupt) -> None:
    decoders = Decoders(on_corrupt=on_corrupt)
    with (
        writing_to(cache.parent),
        atomic_folder(cache, keep_existing=True) as draft,
        tqdm(total=len(listing), desc=f"decoding {cache.name}", disable=None) as bar,
    ):
        pixels = mapped_array(draft / "pixels.npy", np.uint8, (len(listing), 3, *IMAGE_SIZE))

        def work(index: int) -> None:
            path = listing.paths[index]
            pixels[index] = decode(path.read_bytes(), str(path), IMAGE_SIZE).transpose(2, 0, 1)
            bar.update()

        try:
            good = decoders.run(work, len(listing))
        finally:
            decoders.close()
        save_array(draft / "labels.npy", np.array(listing.labels, dtype=np.int64)[good])
        if not good.all():
            save_array(draft / "good.npy", pixels[good])
            (draft / "good.npy").replace(draft / "pixels.npy")
            (draft / "skipped.txt").write_text("\n".join(sorted(decoders.corrupt)))


def _warn_of_skipped(record: Path) -> None:
    if record.is_file():
        names = record.read_text().splitlines()
        warnings.warn(f"{len(names)} corrupt images were left out: {', '.join(names[:5])}", stacklevel=3)
