"""Look at a dataset on this machine: `sleepconv data check` verifies its files, `sleepconv data show` draws some."""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import UInt8

from sleepconv.experiments.data.description import Dataset, File, StrPath, data_directory, find_file, md5_of_file
from sleepconv.experiments.data.fashion_mnist import read_content
from sleepconv.experiments.data.images import CHANCES, Source, random_stream
from sleepconv.experiments.data.tasks import find_dataset, load_task
from sleepconv.files import output_file, write_atomically

if TYPE_CHECKING:
    from PIL.Image import Image

_MARGIN = 6
_LEAST_HEIGHT = 48
_NAME_LENGTH = 24


@dataclass
class Report:
    """The state of a dataset on this machine.

    ``usable`` says whether all of it can be read, ``official`` whether every checksum is the publisher's
    (None where the publisher states none for the unpacked files).
    """

    name: str
    folder: str
    usable: bool = True
    official: bool | None = None
    lines: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """Return the report for JSON."""
        return asdict(self)


def check(dataset: Dataset, data_dir: StrPath | None = None) -> Report:
    """Verify every file of a dataset, then read it as training would; nothing is written."""
    root = data_directory(data_dir)
    folder = dataset.directory(root)
    report = Report(dataset.name, str(folder), official=True if dataset.files else None)
    for file in dataset.files:
        _check_file(file, folder, report)
    if report.usable:
        _check_reading(dataset, root, report)
    if not report.usable:
        report.lines += _what_to_do(dataset, root)
    return report


def show(name: str, out: StrPath | None = None, *, data_dir: StrPath | None = None, padding: int = 0) -> str:
    """Write the contact sheet of a dataset to ``out`` (default ``NAME.png``) and return a sentence about it."""
    path = output_file(out if out is not None else f"{find_dataset(name).name}.png")
    source = load_task(name, data_dir=data_dir, padding=padding).train
    content = io.BytesIO()
    contact_sheet(source).save(content, format="PNG")
    write_atomically(path, content.getvalue())
    return f"{len(source):,} training images in {len(source.classes)} classes; some of them are in {path}"


def contact_sheet(source: Source, *, classes: int = 20, images: int = 10, seed: int = 0) -> "Image":
    """Draw a row of random images for each of up to ``classes`` classes, evenly chosen, with their names.

    The images are as training sees them, with the normalisation undone: padding has the mean colour.
    """
    from PIL import Image, ImageDraw

    shown = np.unique(np.linspace(0, len(source.classes) - 1, min(classes, len(source.classes))).round().astype(int))
    rows = [_some_of(source, label, images, seed) for label in shown.tolist()]
    height, width = (
        max(row.shape[1] for row in rows if len(row)),
        max(row.shape[2] for row in rows if len(row)),
    )
    scale = max(1, -(-_LEAST_HEIGHT // height))
    cell = (width * scale + _MARGIN, height * scale + _MARGIN)
    ruler = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    indent = 2 * _MARGIN + int(max(ruler.textlength(source.classes[label][:_NAME_LENGTH]) for label in shown.tolist()))
    sheet = Image.new("RGB", (indent + images * cell[0] + _MARGIN, len(rows) * cell[1] + _MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for place, (label, row) in enumerate(zip(shown.tolist(), rows, strict=True)):
        top = _MARGIN + place * cell[1]
        draw.text((_MARGIN, top + cell[1] // 2 - 8), source.classes[label][:_NAME_LENGTH], fill="black")
        for column, pixels in enumerate(row):
            picture = Image.fromarray(pixels).resize((width * scale, height * scale), Image.Resampling.NEAREST)
            sheet.paste(picture, (indent + column * cell[0], top))
    return sheet


def _check_file(file: File, folder: Path, report: Report) -> None:
    path = find_file(folder / file.name)
    if path is None:
        report.usable = report.official = False
        report.lines.append(f"missing: {folder / file.name}")
        return
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
    """Return size and MD5 of the content, uncompressed if it is gzipped."""
    if path.suffix != ".gz":
        return path.stat().st_size, md5_of_file(path)
    content = read_content(path)
    return len(content), hashlib.md5(content, usedforsecurity=False).hexdigest()


def _check_reading(dataset: Dataset, root: Path, report: Report) -> None:
    try:
        train, test = ((dataset.list_files or dataset.read)(root, train=part) for part in (True, False))
        found, official = (len(train), len(test)), (dataset.train_images, dataset.test_images)
        if None not in official and found != official:
            raise ValueError(f"found {found} training and test images, but the official numbers are {official}")
    except (OSError, ValueError) as error:
        report.usable = False
        report.lines.append(f"cannot be read: {error}")
        return
    report.lines.append(f"readable: {found[0]:,} training and {found[1]:,} test images in {len(train.classes)} classes")
    if report.official is False:
        report.lines.append("all records can be read, but content or order differ from the official files")


def _what_to_do(dataset: Dataset, root: Path) -> Iterator[str]:
    folder = root / dataset.folder
    if dataset.downloads and dataset.is_complete(folder):
        yield f"to do: move {folder} away, because `sleepconv data get {dataset.name}` leaves it unchanged"
    for download in dataset.downloads:
        place = (root if dataset.unpack else folder) / download.filename
        yield f"to do: run `sleepconv data get {dataset.name}`, or place {download.url}"
        yield f"       (MD5 {download.md5}) at {place} first"
    if dataset.advice:
        yield f"to do: {dataset.advice}"
    if not dataset.downloads:
        yield f"       they belong in {folder}"


def _some_of(source: Source, label: int, images: int, seed: int) -> UInt8[np.ndarray, "images height width 3"]:
    """Return some images of a class as the network sees them, but with the normalisation undone."""
    random = random_stream("show", seed=seed, step=label)
    members = (source.labels == label).nonzero().flatten().cpu().numpy()
    chosen = random.choice(members, min(images, len(members)), replace=False)
    inputs, _ = source.batch(chosen, random.random((len(chosen), CHANCES)))
    scale, shift = source.statistics.scale_and_shift(inputs.device)
    pixels = ((inputs - shift) / scale).round().clamp(0, 255).to(torch.uint8)
    return pixels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).cpu().numpy()
