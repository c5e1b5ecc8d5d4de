"""`sleepconv data bench`: how fast batches are made, compared with bare decoding for JPEG files."""

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
from sleepconv.experiments.data.decoding import Decoders
from sleepconv.experiments.data.description import StrPath
from sleepconv.experiments.data.imagenet import EncodedSource, ImageFolders
from sleepconv.experiments.data.images import CHANCES, Images, TensorSource, measure
from sleepconv.experiments.data.translations import Translate
from sleepconv.experiments.runs.machine import available_cores

_BATCH = 512
_PADDING = 4
_JPEGS = 64
_JPEG_SIZE = (500, 375)


def run(data_dir: StrPath | None = None, *, rounds: int = 5) -> dict[str, object]:
    """Measure on this machine CIFAR-10 batches and JPEG batches, the latter relative to Pillow alone."""
    return {
        "cores": available_cores(),
        "threads": torch.get_num_threads(),
        "cifar10": _measure_cifar10(data_dir, rounds=rounds),
        "jpeg": _measure_jpeg(rounds=rounds),
    }


def _measure_cifar10(data_dir: StrPath | None = None, *, rounds: int = 5) -> dict[str, object]:
    """Measure seconds to read, images per second in padded, cropped, normalised batches of 512, and peak memory."""
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
    source = TensorSource(images, Translate.after_padding(_PADDING, size=(32, 32), statistics=statistics))
    batches = Batches(source, batch_size=_BATCH, drop_last=True)
    seconds = [_seconds(partial(_drain, batches, epoch)) for epoch in range(rounds)]
    per_batch = summary.median(seconds) / len(batches)
    stored = images.pixels.numel()
    return {
        "real_data": real,
        "read_to_ready_s": round(ready, 3),
        "images_per_s": round(_BATCH / per_batch),
        "ms_per_batch": round(per_batch * 1000, 2),
        "peak_memory_over_uint8": round((_peak_bytes() - before) / stored, 2),
    }


def _measure_jpeg(*, rounds: int = 5) -> dict[str, object]:
    """Measure the ImageNet training pipeline (read, decode, resize, crop, flip, normalise) against bare decoding."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_photographs(folder / "photograph")
        files = ImageFolders(folder)
        decoders = Decoders()
        source = EncodedSource(files, np.arange(_JPEGS), train=True, decoders=decoders)
        chance = np.random.default_rng(0).random((_JPEGS, CHANCES))
        ways: dict[str, Callable[[], object]] = {
            "pipeline": lambda: source.batch(np.arange(_JPEGS), chance),
            "pillow_array": lambda: decoders.run(lambda row: _decode(files.read(row)), _JPEGS),
            "pillow_load": lambda: decoders.run(lambda row: _decode(files.read(row), array=False), _JPEGS),
        }
        turns = [{name: _seconds(way) for name, way in ways.items()} for _ in range(rounds)]
        decoders.close()
    best = {name: min(turn[name] for turn in turns) for name in ways}
    return {
        "images_per_s": round(_JPEGS / best["pipeline"]),
        "times_pillow_to_array": round(best["pipeline"] / best["pillow_array"], 2),
        "times_pillow_load_only": round(best["pipeline"] / best["pillow_load"], 2),
    }


def as_text(result: dict[str, object]) -> str:
    """Format the result of `run`, one number per line."""
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
    """Decode with Pillow alone, to an RGB array or without access to the pixels."""
    from PIL import Image

    image = Image.open(io.BytesIO(content))
    if array:
        np.asarray(image.convert("RGB"))
    else:
        image.load()


def _write_photographs(folder: Path) -> None:
    """Write crops of a real photograph with the size and quality of a typical ImageNet file."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    folder.mkdir()
    photograph = Image.fromarray(load_sample_image("china.jpg"))
    for number in range(_JPEGS):
        left, top = number % (photograph.width - _JPEG_SIZE[0]), number % (photograph.height - _JPEG_SIZE[1])
        view = photograph.crop((left, top, left + _JPEG_SIZE[0], top + _JPEG_SIZE[1]))
        view.save(folder / f"{number:04d}.jpg", quality=96)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
