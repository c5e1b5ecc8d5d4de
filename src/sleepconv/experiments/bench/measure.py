"""Time contenders against each other, and measure peak memory in a separate process."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sleepconv.experiments.bench.peers import layer_of_shape, layer_steps, networks, training_step
from sleepconv.experiments.results.listing import FORWARD_AND_BACKWARD, WORK
from sleepconv.memory import keep_freed_memory
from sleepconv.models import resnet20
from sleepconv.nn import LocallyConnected2d

_PROBE_BATCH = 64


def race(
    contenders: Mapping[str, Callable[[], object]], rounds: int, *, wait: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """Return the best time of each in seconds; they take turns, so that outside load affects all of them.

    ``wait`` waits for a device that computes after a call has returned.
    """
    best = {name: float("inf") for name in contenders}
    for round_number in range(rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            wait()
            if round_number:  # the first round warms up
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def matrix_product_gflops(rounds: int) -> float:
    """Measure the speed of a large matrix product on this machine."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    return 2 * 2048**3 / race({"product": lambda: a @ b}, rounds)["product"] / 1e9


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


def _time_step(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    start = time.perf_counter()
    F.cross_entropy(model(images), labels).backward()
    return time.perf_counter() - start


def layer_gflop(layer: LocallyConnected2d, batch: int) -> float:
    """Count the operations, in billions, of forward pass and both gradients, including those in the padding."""
    return 3 * 2 * batch * layer.weight.numel() / 1e9


def geometric_mean(values: list[float]) -> float:
    """Return the exponential of the mean logarithm."""
    return exp(sum(map(log, values)) / len(values))


def network_memory(network: str, batch: int) -> float:
    """Measure the peak memory in GB of a process that takes two training steps of ResNet20."""
    return _in_a_separate_process("network", network, batch)


def layer_memory(shape: Sequence[int], batch: int) -> float:
    """Measure the peak memory in GB that two forward and backward passes of one layer add to a process."""
    return _in_a_separate_process("layer", list(shape), batch)


def _in_a_separate_process(*what: Any) -> float:
    command = [sys.executable, "-m", "sleepconv.experiments.bench.measure", json.dumps(what)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"measuring the memory of {what} failed: {result.stderr.strip().splitlines()[-1:]}")
    return json.loads(result.stdout)


def _measure(kind: str, what: Any, batch: int) -> float:
    if kind == "network":
        step, before = training_step(networks()[what](), batch), 0.0
    else:
        step = layer_steps(layer_of_shape([1, 1, 1, 1, 1]), 1, unfold=False)["sleepconv"]
        step()  # so that what the libraries allocate is not attributed to the layer
        before = _peak()
        step = layer_steps(layer_of_shape(what), batch, unfold=False)["sleepconv"]
    for _ in range(2):
        step()
    return _peak() - before


def _peak() -> float:
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent's peak on Linux
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


if __name__ == "__main__":
    keep_freed_memory()
    sys.stdout.write(json.dumps(_measure(*json.loads(sys.argv[1]))))
