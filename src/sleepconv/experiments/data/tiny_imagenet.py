"""TinyImageNet from its official folder, decoded once into a memory-mapped cache."""

import hashlib
import warnings
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from sleepconv.experiments.data.description import Dataset, Download, read_lines, require_file
from sleepconv.experiments.data.images import Images
from sleepconv.experiments.data.encoded import Decoders, OnCorrupt, decode
from sleepconv.experiments.data.description import StrPath, cache_directory, data_directory, replaced_when_done
from sleepconv.mapped import mapped_array, save_array

SIZE = 64
TINY_IMAGENET = Dataset(
    name="tiny-imagenet",
    title="TinyImageNet",
    folder="tiny-imagenet-200",
    downloads=(
        Download(
            "tiny-imagenet-200.zip",
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "90528d7ca1a48142e341f4ef8d21d0de",
        ),
    ),
)
Listing = list[tuple[Path, int]]


def tiny_imagenet(
    data_dir: StrPath | None = None,
    *,
    train: bool = True,
    complete: bool = True,
    on_corrupt: OnCorrupt = "error",
) -> Images:
    """Read TinyImageNet: 100,000 training images, or as test set the 10,000 official validation images.

    The first call decodes the files of ``DATA_DIR/tiny-imagenet-200`` into one uint8 array (1.2 GB for
    training), which is memory-mapped from then on. ``complete=False`` accepts fewer classes and images than
    the official ones.

    >>> tiny_imagenet("no/such/folder")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    FileNotFoundError: there is no such file; run `sleepconv data get tiny-imagenet`
    """
    root = data_directory(data_dir)
    folder = root / TINY_IMAGENET.folder
    part = "train" if train else "val"
    wnids, names = class_names(folder, complete=complete)
    listing = (list_training if train else list_validation)(folder, wnids)
    official = 100_000 if train else 10_000
    if complete and len(listing) != official:
        raise ValueError(
            f"{folder / part} holds {len(listing):,} images, but TinyImageNet has {official:,}; "
            "run `sleepconv data check tiny-imagenet`"
        )
    cache = cache_directory(root) / f"tiny-imagenet-{part}-{_fingerprint(folder, listing, on_corrupt)}"
    if not cache.is_dir():
        _decode_into(cache, listing, on_corrupt)
    # Copy-on-write, so that torch gets a writable array; nothing is ever written to the file.
    pixels = torch.from_numpy(np.load(cache / "pixels.npy", mmap_mode="c"))
    _report_skipped(cache / "skipped.txt")
    return Images(pixels, torch.from_numpy(np.load(cache / "labels.npy")), names)


def class_names(folder: Path, *, complete: bool = True) -> tuple[list[str], tuple[str, ...]]:
    """The class identifiers of ``wnids.txt``, sorted, and their names from ``words.txt``."""
    wnids = sorted(" ".join(read_lines(require_file(folder / "wnids.txt", TINY_IMAGENET.name))).split())
    if len(set(wnids)) != len(wnids) or not wnids or (complete and len(wnids) != 200):
        raise ValueError(f"{folder / 'wnids.txt'} lists {len(set(wnids))} classes, but TinyImageNet has 200")
    words = {}
    if (folder / "words.txt").is_file():
        words = dict(line.split("\t", 1) for line in read_lines(folder / "words.txt") if "\t" in line)
    return wnids, tuple(words.get(wnid, wnid).split(",")[0] for wnid in wnids)


def list_training(folder: Path, wnids: list[str]) -> Listing:
    """The files ``train/WNID/images/*.JPEG`` with their labels."""
    listing: Listing = []
    for label, wnid in enumerate(wnids):
        images = folder / "train" / wnid / "images"
        found = sorted(images.glob("*.JPEG")) if images.is_dir() else []
        if not found:
            raise FileNotFoundError(
                f"{images} has no images, but wnids.txt names the class {wnid}; "
                f"move {folder} away and run `sleepconv data get tiny-imagenet`"
            )
        listing += [(path, label) for path in found]
    return listing


def list_validation(folder: Path, wnids: list[str]) -> Listing:
    """The files ``val/images/*.JPEG``; they are not sorted: labels are in ``val_annotations.txt``."""
    annotations = require_file(folder / "val" / "val_annotations.txt", TINY_IMAGENET.name)
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    listing: Listing = []
    for number, line in enumerate(read_lines(annotations), start=1):
        fields = line.split("\t")
        if len(fields) < 2 or fields[1] not in labels or Path(fields[0]).name != fields[0]:
            raise ValueError(f"line {number} of {annotations} names no file and known class: {line[:60]!r}")
        listing.append((folder / "val" / "images" / fields[0], labels[fields[1]]))
    missing = [path for path, _ in listing if not path.is_file()]
    if missing or not listing:
        raise FileNotFoundError(
            f"{folder / 'val' / 'images'} lacks {len(missing)} of the {len(listing)} images that "
            f"val_annotations.txt lists{f', first {missing[0].name}' if missing else ''}; if val/ was sorted "
            f"into class folders, move {folder} away and run `sleepconv data get tiny-imagenet`"
        )
    return listing


def _fingerprint(folder: Path, listing: Listing, on_corrupt: OnCorrupt) -> str:
    """Changes with the list of files, so that a cache made from other files is never used."""
    lines = (f"{path.relative_to(folder)} {label}" for path, label in listing)
    return hashlib.sha256("\n".join([on_corrupt, *lines]).encode()).hexdigest()[:12]


def _decode_into(cache: Path, listing: Listing, on_corrupt: OnCorrupt) -> None:
    decoders = Decoders(on_corrupt=on_corrupt)
    with (
        replaced_when_done(cache, keep=True) as new,
        tqdm(total=len(listing), desc=f"decoding {cache.name}", disable=None) as bar,
    ):
        shape = (len(listing), 3, SIZE, SIZE)
        pixels = mapped_array(new / "pixels.npy", np.uint8, shape)

        def work(index: int) -> None:
            path = listing[index][0]
            pixels[index] = decode(path.read_bytes(), str(path), (SIZE, SIZE)).transpose(2, 0, 1)
            bar.update()

        try:
            good = decoders.run(work, len(listing))
        finally:
            decoders.close()
        labels = np.array([label for _, label in listing], dtype=np.int64)
        save_array(new / "labels.npy", labels[good])
        if not good.all():
            save_array(new / "good.npy", pixels[good])
            (new / "good.npy").replace(new / "pixels.npy")
            (new / "skipped.txt").write_text("\n".join(sorted(decoders.corrupt)))


def _report_skipped(record: Path) -> None:
    if record.is_file():
        names = record.read_text().splitlines()
        warnings.warn(f"{len(names)} corrupt images were left out: {', '.join(names[:5])}", stacklevel=3)
