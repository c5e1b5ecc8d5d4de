"""`sleepconv data bench`: how fast batches are made, and what that costs next to the least it could cost."""

import io
import resource
import statistics as summary
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from sleepconv.experiments.data.batches import Batches
from sleepconv.experiments.data.cifar import cifar10
from sleepconv.experiments.data.encoded import EncodedSource
from sleepconv.experiments.data.imagenet import ImageFolders
from sleepconv.experiments.data.images import Images
from sleepconv.experiments.data.encoded import Decoders, available_cores
from sleepconv.experiments.data.description import StrPath
from sleepconv.experiments.data.images import CHANCES, TensorSource
from sleepconv.experiments.data.images import measure
from sleepconv.experiments.data.translations import Translate

BATCH = 512
PADDING = 4
JPEGS = 64
JPEG_SIZE = (500, 375)


def run(data_dir: StrPath | None = None, *, rounds: int = 5) -> dict[str, object]:
    """Measure both pipelines on this machine: CIFAR-10 batches, and JPEG decoding beside bare Pillow."""
    return {
        "cores": available_cores(),
        "threads": torch.get_num_threads(),
        "cifar10": measure_cifar10(data_dir, rounds=rounds),
        "jpeg": measure_jpeg(rounds=rounds),
    }


def measure_cifar10(data_dir: StrPath | None = None, *, rounds: int = 5) -> dict[str, object]:
    """Seconds to read, images per second of padded, cropped, normalised batches of 512, and peak memory."""
    measure(Images(torch.arange(12).to(torch.uint8).view(4, 3, 1, 1), torch.zeros(4).long(), ("warm-up",)))
    before = _peak_bytes()
    began = time.perf_counter()
    try:
        images, real = cifar10(data_dir), True
    except FileNotFoundError:
        random = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 256, (50_000, 3, 32, 32), dtype=torch.uint8, generator=random)
        images, real = Images(pixels, torch.zeros(50_000, dtype=torch.int64), ("random pixels",)), False
    statistics = measure(images)
    ready = time.perf_counter() - began
    source = TensorSource(images, Translate.after_padding(PADDING, size=(32, 32), statistics=statistics))
    batches = Batches(source, batch_size=BATCH, drop_last=True)
    seconds = [_seconds(partial(_drain, batches, epoch)) for epoch in range(rounds)]
    per_batch = summary.median(seconds) / len(batches)
    stored = images.pixels.numel()
    return {
        "real_data": real,
        "read_to_ready_s": round(ready, 3),
        "images_per_s": round(BATCH / per_batch),
        "ms_per_batch": round(per_batch * 1000, 2),
        "peak_memory_over_uint8": round((_peak_bytes() - before) / stored, 2),
    }


def measure_jpeg(*, rounds: int = 5) -> dict[str, object]:
    """The ImageNet training pipeline (read, decode, resize, crop, flip, normalise) against bare decoding."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_photographs(folder / "photograph")
        files = ImageFolders(folder)
        decoders = Decoders()
        source = EncodedSource(files, np.arange(JPEGS), train=True, decoders=decoders)
        chance = np.random.default_rng(0).random((JPEGS, CHANCES))
        ways: dict[str, Callable[[], object]] = {
            "pipeline": lambda: source.batch(np.arange(JPEGS), chance),
            "pillow_array": lambda: decoders.run(lambda row: _decode(files.read(row)), JPEGS),
            "pillow_load": lambda: decoders.run(lambda row: _decode(files.read(row), array=False), JPEGS),
        }
        turns = [{name: _seconds(way) for name, way in ways.items()} for _ in range(rounds)]
        decoders.close()
    best = {name: min(turn[name] for turn in turns) for name in ways}
    return {
        "images_per_s": round(JPEGS / best["pipeline"]),
        "times_pillow_to_array": round(best["pipeline"] / best["pillow_array"], 2),
        "times_pillow_load_only": round(best["pipeline"] / best["pillow_load"], 2),
    }


def as_text(result: dict[str, object]) -> str:
    """The numbers of `run`, one a line."""
    lines = []
    for name, value in result.items():
        if isinstance(value, dict):
            lines += [f"{name:8} {key:24} {number}" for key, number in value.items()]
        else:
            lines.append(f"{name:33} {value}")
    return "\n".join(lines)


def _drain(batches: Batches, epoch: int) -> None:
    for _ in batches.epoch(epoch):
        pass


def _decode(content: bytes, *, array: bool = True) -> None:
    """What one writes with Pillow: to an RGB array, or only the decoder without access to the pixels."""
    from PIL import Image

    image = Image.open(io.BytesIO(content))
    if array:
        np.asarray(image.convert("RGB"))
    else:
        image.load()


def _write_photographs(folder: Path) -> None:
    """Views of a real photograph in the size and quality of a typical ImageNet file."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    folder.mkdir()
    photograph = Image.fromarray(load_sample_image("china.jpg"))
    for number in range(JPEGS):
        left, top = number % (photograph.width - JPEG_SIZE[0]), number % (photograph.height - JPEG_SIZE[1])
        view = photograph.crop((left, top, left + JPEG_SIZE[0], top + JPEG_SIZE[1]))
        view.save(folder / f"{number:04d}.jpg", quality=96)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
