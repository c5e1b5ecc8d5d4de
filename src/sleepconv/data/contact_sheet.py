"""`sleepconv data show`: a picture of some images of every class, as training sees them."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import UInt8

from sleepconv.data.catalogue import find_dataset
from sleepconv.data.locations import StrPath
from sleepconv.data.randomness import random_stream
from sleepconv.data.sources import CHANCES, Source
from sleepconv.data.tasks import load_task

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
