"""`sleepconv data show`: a picture of some images of every class, as training sees them."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sleepconv.experiments.data.description import Dataset, File, md5_of, md5_of_file
from sleepconv.experiments.data.digits import digits
from sleepconv.experiments.data.fashion_mnist import fashion_mnist_folder, read_content
from sleepconv.experiments.data.description import StrPath, data_directory
from sleepconv.experiments.data.imagenet import imagenet_folders
from sleepconv.experiments.data.tasks import READERS
from sleepconv.experiments.data.tiny_imagenet import class_names, list_training, list_validation
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import UInt8

from sleepconv.experiments.data.tasks import find_dataset
from sleepconv.experiments.data.description import StrPath
from sleepconv.experiments.data.images import random_stream
from sleepconv.experiments.data.images import CHANCES, Source
from sleepconv.experiments.data.tasks import load_task


@dataclass
class Report:
    """The state of a dataset on this machine.

    ``usable`` says whether it can be read in full; ``official`` whether every checksum is the publisher's
    (None where the publisher states none for the unpacked files).
    """

    name: str
    folder: str
    usable: bool = True
    official: bool | None = None
    lines: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """For a script."""
        return asdict(self)


def check(dataset: Dataset, data_dir: StrPath | None = None) -> Report:
    """Look at every file of a dataset, then read it as training would."""
    root = data_directory(data_dir)
    report = Report(dataset.name, str(_folder(dataset, root)))
    if dataset.name == "digits":
        report.lines.append(f"{len(digits(held_out=0)):,} digits come with scikit-learn; nothing to download")
        return report
    _check_files(dataset, _folder(dataset, root), report)
    if report.usable:
        _check_reading(dataset, root, report)
    if not report.usable:
        report.lines += list(_what_to_do(dataset, root))
    return report


def is_complete(dataset: Dataset, folder: Path) -> bool:
    """Whether every file that the reader needs is there, by name (gzipped or not)."""
    names = [file.name for file in dataset.files]
    return folder.is_dir() and all((folder / n).is_file() or (folder / f"{n}.gz").is_file() for n in names)


def _folder(dataset: Dataset, root: Path) -> Path:
    return fashion_mnist_folder(root) if dataset.name == "fashion-mnist" else root / dataset.folder


def _check_files(dataset: Dataset, folder: Path, report: Report) -> None:
    if dataset.files:
        report.official = True
    for file in dataset.files:
        path = next((p for p in (folder / file.name, folder / f"{file.name}.gz") if p.is_file()), None)
        if path is None:
            report.usable = report.official = False
            report.lines.append(f"missing: {folder / file.name}")
        else:
            _check_file(file, path, report)


def _check_file(file: File, path: Path, report: Report) -> None:
    try:
        size, md5 = _size_and_md5(path)
    except (OSError, ValueError) as error:
        report.usable = report.official = False
        report.lines.append(f"cannot be read: {error}")
        return
    if file.size is not None and size != file.size:
        report.usable = report.official = False
        report.lines.append(f"wrong size: {path} has {size:,} bytes, not {file.size:,}; truncated or damaged")
    elif file.md5 is not None and md5 != file.md5:
        report.official = False
        report.lines.append(f"complete, but not the official file: {path} has MD5 {md5}, not {file.md5}")
    else:
        report.lines.append(f"{'official' if file.md5 else 'present'}: {path}")


def _size_and_md5(path: Path) -> tuple[int, str]:
    """Of the content, unpacked if it is gzipped."""
    if path.suffix != ".gz":
        return path.stat().st_size, md5_of_file(path)
    content = read_content(path)
    return len(content), md5_of(content)


def _check_reading(dataset: Dataset, root: Path, report: Report) -> None:
    try:
        train, test, classes = _counts(dataset, root)
    except (OSError, ValueError) as error:
        report.usable = False
        report.lines.append(f"cannot be read: {error}")
        return
    report.lines.append(f"readable: {train:,} training and {test:,} test images in {classes} classes")
    if report.official is False:
        report.lines.append("all records are whole, but in content or order the files are not the official ones")


def _counts(dataset: Dataset, root: Path) -> tuple[int, int, int]:
    """Training images, test images and classes, found without writing anything."""
    if dataset.name == "tiny-imagenet":
        wnids, _ = class_names(root / dataset.folder)
        listings = (
            list_training(root / dataset.folder, wnids),
            list_validation(root / dataset.folder, wnids),
        )
        _expect("images", [len(listing) for listing in listings], [100_000, 10_000])
        return len(listings[0]), len(listings[1]), len(wnids)
    if dataset.name == "imagenet":
        train, test = (imagenet_folders(root, train=part) for part in (True, False))
        _expect("images", [len(train.labels), len(test.labels)], [1_281_167, 50_000])
        return len(train.labels), len(test.labels), len(train.classes)
    reader = READERS[dataset.name]
    held, shown = reader(root, train=True), reader(root, train=False)
    return len(held), len(shown), len(held.classes)


def _expect(what: str, found: list[int], official: list[int]) -> None:
    if found != official:
        raise ValueError(f"found {found} training and test {what}, but the official numbers are {official}")


def _what_to_do(dataset: Dataset, root: Path) -> Iterator[str]:
    folder = root / dataset.folder
    if dataset.downloads and is_complete(dataset, folder):
        yield f"to do: move {folder} away, which `sleepconv data get {dataset.name}` would leave as it is"
    for download in dataset.downloads:
        place = (root if dataset.unpack else folder) / download.filename
        yield f"to do: run `sleepconv data get {dataset.name}`, or place {download.url}"
        yield f"       (MD5 {download.md5}) at {place} and run it then"
    if dataset.advice:
        yield f"to do: {dataset.advice}"
    if not dataset.downloads:
        yield f"       they belong in {folder}"


if TYPE_CHECKING:
    from PIL.Image import Image

MARGIN = 6
LEAST_HEIGHT = 48
NAME_LENGTH = 24


def contact_sheet(source: Source, *, classes: int = 20, images: int = 10, seed: int = 0) -> "Image":
    """Draw a row of random images for each of up to ``classes`` classes, evenly chosen, with their names.

    The images are as training sees them, with the normalisation undone: padding shows in the mean colour.
    """
    from PIL import Image, ImageDraw

    shown = np.unique(np.linspace(0, len(source.classes) - 1, min(classes, len(source.classes))).round().astype(int))
    rows = [_some_of(source, label, images, seed) for label in shown.tolist()]
    height, width = (
        max(row.shape[1] for row in rows if len(row)),
        max(row.shape[2] for row in rows if len(row)),
    )
    scale = max(1, -(-LEAST_HEIGHT // height))
    cell = (width * scale + MARGIN, height * scale + MARGIN)
    ruler = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    indent = 2 * MARGIN + int(max(ruler.textlength(source.classes[label][:NAME_LENGTH]) for label in shown.tolist()))
    sheet = Image.new("RGB", (indent + images * cell[0] + MARGIN, len(rows) * cell[1] + MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for place, (label, row) in enumerate(zip(shown.tolist(), rows, strict=True)):
        top = MARGIN + place * cell[1]
        draw.text((MARGIN, top + cell[1] // 2 - 8), source.classes[label][:NAME_LENGTH], fill="black")
        for column, pixels in enumerate(row):
            picture = Image.fromarray(pixels).resize((width * scale, height * scale), Image.Resampling.NEAREST)
            sheet.paste(picture, (indent + column * cell[0], top))
    return sheet


def show(name: str, out: StrPath | None = None, *, data_dir: StrPath | None = None, padding: int = 0) -> str:
    """Write the contact sheet of a dataset to ``out`` (default ``NAME.png``) and say so."""
    path = Path(out) if out is not None else Path(f"{find_dataset(name).name}.png")
    source = load_task(name, data_dir=data_dir, padding=padding).train
    save_picture(contact_sheet(source), path)
    return f"{len(source):,} training images in {len(source.classes)} classes; some of them are in {path}"


def save_picture(picture: "Image", path: Path) -> None:
    """Write a PNG, whole or not at all."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file, such as {path / 'sheet.png'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    try:
        picture.save(partial, format="PNG")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _some_of(source: Source, label: int, images: int, seed: int) -> UInt8[np.ndarray, "images height width 3"]:
    """Some images of a class, as they go into the network but with the normalisation undone."""
    random = random_stream("show", seed=seed, step=label)
    members = (source.labels == label).nonzero().flatten().cpu().numpy()
    chosen = random.choice(members, min(images, len(members)), replace=False)
    inputs, _ = source.batch(chosen, random.random((len(chosen), CHANCES)))
    scale, shift = source.statistics.scale_and_shift(inputs.device)
    pixels = ((inputs - shift) / scale).round().clamp(0, 255).to(torch.uint8)
    return pixels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).cpu().numpy()
