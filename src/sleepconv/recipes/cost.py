"""How long a run would take on this machine: an estimate, from the arithmetic of its network and a quick probe."""

import time

import torch
import torch.nn.functional as F

from sleepconv.models import resnet20
from sleepconv.training import Run, keep_freed_memory

# Multiply-adds of one image's forward pass, training images and test images.
WORK = {
    "cifar10": (40.8e6, 50_000, 10_000),
    "cifar10-16x16": (3.1e6, 50_000, 10_000),
    "cifar100": (40.8e6, 50_000, 10_000),
    "tiny-imagenet": (91.8e6, 100_000, 10_000),
    "imagenet": (483.1e6, 1_281_167, 50_000),
}
# A backward pass costs two forward passes; a locally connected step costs what benchmarks/README.md has at most.
FORWARD_AND_BACKWARD = 3
LOCAL_OVERHEAD = 1.2
PROBE_BATCH = 64


def probe(seconds: float = 0.3) -> float:
    """Multiply-adds per second of training: the fastest of a few steps of the convolutional ResNet20."""
    keep_freed_memory()
    with torch.random.fork_rng():
        model = resnet20().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = torch.randn(PROBE_BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.zeros(PROBE_BATCH, dtype=torch.int64)
    _time_step(model, images, labels)
    times: list[float] = []
    while sum(times) < seconds:
        times.append(_time_step(model, images, labels))
    return FORWARD_AND_BACKWARD * WORK["cifar10"][0] * PROBE_BATCH / min(times)


def _time_step(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    start = time.perf_counter()
    F.cross_entropy(model(images), labels).backward()
    return time.perf_counter() - start


def seconds_per_epoch(run: Run, speed: float) -> float:
    """The time of one epoch and its evaluation at this many multiply-adds per second; reading images not counted.

    >>> from sleepconv.recipes import recipe
    >>> round(seconds_per_epoch(recipe("cifar10_convolutional"), speed=100e9))
    65
    """
    per_image, train, test = WORK[run.dataset]
    images = FORWARD_AND_BACKWARD * train * run.repetitions + test
    overhead = 1.0 if run.connectivity == "convolutional" else LOCAL_OVERHEAD
    return images * per_image * overhead / speed


def readable(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> readable(42), readable(600), readable(7200), readable(1e6)
    ('42 s', '10 min', '2.0 h', '11.6 d')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} d"
