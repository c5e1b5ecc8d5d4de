"""A quick probe of how fast this machine trains."""

import time

import torch
import torch.nn.functional as F

from sleepconv.experiments.results.listing import FORWARD_AND_BACKWARD, WORK
from sleepconv.memory import keep_freed_memory
from sleepconv.models import resnet20

_PROBE_BATCH = 64


def probe(seconds: float = 0.3) -> float:
    """Measure multiply-adds per second of training: the fastest of a few steps of the convolutional ResNet20."""
    keep_freed_memory()
    with torch.random.fork_rng():
        model = resnet20().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = torch.randn(_PROBE_BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.zeros(_PROBE_BATCH, dtype=torch.int64)
    _time_step(model, images, labels)
    times: list[float] = []
    while sum(times) < seconds:
        times.append(_time_step(model, images, labels))
    return FORWARD_AND_BACKWARD * WORK["cifar10"][0] * _PROBE_BATCH / min(times)


def _time_step(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    start = time.perf_counter()
    F.cross_entropy(model(images), labels).backward()
    return time.perf_counter() - start
