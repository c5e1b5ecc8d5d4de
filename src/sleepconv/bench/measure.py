"""Measure times against each other, and peak memory in a process of its own."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from math import exp, log
from pathlib import Path

import torch
from torch import nn

from sleepconv.bench.peers import networks, training_step
from sleepconv.nn import LocallyConnected2d
from sleepconv.training import keep_freed_memory


def race(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Best time of each in seconds; they take turns, so that noise from outside meets all of them."""
    best = {name: float("inf") for name in contenders}
    for round_number in range(rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if round_number:  # the first round warms up
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def matrix_product_gflops(rounds: int) -> float:
    """What a large matrix product reaches here."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    return 2 * 2048**3 / race({"product": lambda: a @ b}, rounds)["product"] / 1e9


def layer_gflop(layer: LocallyConnected2d, batch: int) -> float:
    """Billions of operations in forward, input gradient and weight gradient (taps in the padding counted too)."""
    return 3 * 2 * batch * layer.weight.numel() / 1e9


def geometric_mean(values: list[float]) -> float:
    """exp of the mean log."""
    return exp(sum(map(log, values)) / len(values))


def peak_memory(network: str, batch: int) -> float:
    """Peak resident memory in GB of a process that does two training steps."""
    command = [sys.executable, "-m", "sleepconv.bench.measure", network, str(batch)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"measuring the memory of {network} failed: {result.stderr.strip().splitlines()[-1:]}")
    return json.loads(result.stdout)


def _steps_and_peak(model: nn.Module, batch: int) -> float:
    step = training_step(model, batch)
    for _ in range(2):
        step()
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent's peak on Linux
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


if __name__ == "__main__":
    keep_freed_memory()
    sys.stdout.write(json.dumps(_steps_and_peak(networks()[sys.argv[1]](), int(sys.argv[2]))))
