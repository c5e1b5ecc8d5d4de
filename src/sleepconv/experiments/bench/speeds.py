"""``sleepconv bench``: run the races, print the table, write the record."""

import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from sleepconv.experiments.bench.measure import (
    geometric_mean,
    layer_gflop,
    layer_memory,
    matrix_product_gflops,
    network_memory,
    race,
)
from sleepconv.experiments.bench.peers import jax_step, layer_of_shape, layer_steps, networks, training_step
from sleepconv.experiments.bench.steps import training_cost
from sleepconv.kernels import native
from sleepconv.memory import keep_freed_memory

Record = dict[str, Any]

# in, out, kernel, stride, input side: every layer shape of ResNet20
SHAPES = [
    (3, 16, 3, 1, 32),
    (16, 16, 3, 1, 32),
    (16, 32, 3, 2, 32),
    (16, 32, 1, 2, 32),
    (32, 32, 3, 1, 16),
    (32, 64, 3, 2, 16),
    (32, 64, 1, 2, 16),
    (64, 64, 3, 1, 8),
]


def run(*, json_path: str | None = None, markdown_path: str | None = None, quick: bool = False) -> int:
    """Measure everything; print it as Markdown, and write it where asked."""
    for path in filter(None, (json_path, markdown_path)):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    keep_freed_memory()
    rounds = 2 if quick else 8
    record: Record = {"machine": _machine(), "matrix_product_gflops": matrix_product_gflops(10)}
    record["layers"] = list(_layers(rounds, batches=[32] if quick else [512, 32]))
    record["steps"] = list(_steps(2 if quick else 4, batches=[128] if quick else [512, 128]))
    record["memory"] = list(_memory([128] if quick else [512]))
    record["growth"] = list(_growth(rounds))
    record["training"] = training_cost(1 if quick else 3)
    text = as_markdown(record)
    sys.stdout.write(text)
    if json_path:
        Path(json_path).write_text(json.dumps(record, indent=1) + "\n")
    if markdown_path:
        Path(markdown_path).write_text(text)
    return 0


def _machine() -> Record:
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    kernel = native.unavailable() or f"native, {native.instruction_set().name}"
    return {
        "processor": name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "kernel": kernel,
    }


def _layers(rounds: int, batches: list[int]) -> Iterator[Record]:
    for batch in batches:
        for shape in SHAPES:
            layer = layer_of_shape(shape)
            steps = layer_steps(layer, batch, unfold=batch < 512)
            slow = {"unfold + einsum": steps.pop("unfold + einsum")} if batch < 512 else {}
            if batch < 512 and (peer := jax_step(layer, batch)):
                slow["JAX"] = peer
            seconds = race(steps, rounds if batch >= 512 else 4 * rounds) | race(slow, 2)
            yield {"shape": shape, "batch": batch, "seconds": seconds, "gflop": layer_gflop(layer, batch)}


def _steps(rounds: int, batches: list[int]) -> Iterator[Record]:
    for batch in batches:
        steps = {name: training_step(make(), batch) for name, make in networks().items()}
        slow = steps.pop("unfold + einsum")
        seconds = race(steps, 2 * rounds) | race({"unfold + einsum": slow}, 1)
        yield {"batch": batch, "seconds": seconds}


def _memory(batches: list[int]) -> Iterator[Record]:
    for batch in batches:
        yield {"batch": batch, "gigabytes": {name: network_memory(name, batch) for name in networks()}}


def _growth(rounds: int) -> Iterator[Record]:
    """Time and memory of one layer while one of batch, channels and side doubles."""
    for what, values in [("batch", [64, 128, 256]), ("channels", [16, 32, 64]), ("side", [8, 16, 32])]:
        for value in values:
            sizes = {"batch": 128, "channels": 32, "side": 16} | {what: value}
            shape = (sizes["channels"], sizes["channels"], 3, 1, sizes["side"])
            layer = layer_of_shape(shape)
            steps = layer_steps(layer, sizes["batch"], unfold=False)
            seconds = race({"sleepconv": steps["sleepconv"]}, rounds)["sleepconv"]
            megabytes = 1e3 * layer_memory(shape, sizes["batch"])
            yield {"what": what, "value": value, "milliseconds": 1e3 * seconds, "megabytes": megabytes}


def as_markdown(record: Record) -> str:
    """The record as the page that ``benchmarks/README.md`` keeps."""
    machine = record["machine"]
    lines = [
        "# Speed and memory",
        "",
        f"{machine['processor']}, {machine['threads']} threads, PyTorch {machine['torch']}; {machine['kernel']}.",
        f"A large matrix product reaches {record['matrix_product_gflops']:.0f} GFLOP/s.",
        "Times are the best of several rounds in which the contenders take turns, forward and backward, all with freed",
        "memory kept in the process. Below 1: faster (smaller) than the peer. `make bench` rebuilds this page.",
        "Where the same layer stands in several rows, the spread of its times is the noise of the machine.",
        "",
        *_step_lines(record),
        *_training_lines(record),
        *_layer_lines(record),
        *_growth_lines(record),
    ]
    return "\n".join(lines) + "\n"


def _step_lines(record: Record) -> Iterator[str]:
    yield "## Training step of ResNet20"
    yield ""
    yield "| | batch | sleepconv | ÷ convolution | ÷ unfold + einsum |"
    yield "|---|---|---|---|---|"
    for title, rows, key, unit in [
        ("time", record["steps"], "seconds", "s"),
        ("peak memory", record["memory"], "gigabytes", "GB"),
    ]:
        for row in rows:
            ours, conv, unfold = (row[key][name] for name in ("sleepconv", "convolution", "unfold + einsum"))
            yield f"| {title} | {row['batch']} | {ours:.2f} {unit} | {ours / conv:.2f} | {ours / unfold:.2f} |"
    yield ""


def _training_lines(record: Record) -> Iterator[str]:
    yield "## Training ResNet20 on CIFAR-like images, batch 512"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for title, key in {
        "an epoch of the sleeping network (data, sleep every step, evaluation) ÷ convolution": "epoch ÷ convolution",
        "a step of the loop (data included) ÷ forward, backward and AdamW alone": "loop ÷ bare step",
        "a checkpoint ÷ an epoch": "checkpoint ÷ epoch",
        "seconds to read a checkpoint and go on": "seconds to go on",
    }.items():
        yield f"| {title} | {record['training'][key]:.2f} |"
    yield ""


def _layer_lines(record: Record) -> Iterator[str]:
    yield "## Layers of ResNet20"
    yield ""
    yield "| layer | batch | ms | ÷ convolution | ÷ unfold + einsum | ÷ JAX | of the matrix product |"
    yield "|---|---|---|---|---|---|---|"
    for row in record["layers"]:
        ins, outs, kernel, stride, side = row["shape"]
        name = f"{ins}→{outs}, {kernel}×{kernel}, stride {stride}, {side}×{side}"
        speed = row["gflop"] / row["seconds"]["sleepconv"] / record["matrix_product_gflops"]
        ratios = " | ".join(_ratio(row, peer) for peer in ("convolution", "unfold + einsum", "JAX"))
        yield f"| {name} | {row['batch']} | {1e3 * row['seconds']['sleepconv']:.2f} | {ratios} | {speed:.0%} |"
    for batch in dict.fromkeys(row["batch"] for row in record["layers"]):
        rows = [r for r in record["layers"] if r["batch"] == batch and r["shape"][2] == 3]
        mean = geometric_mean([r["seconds"]["sleepconv"] / r["seconds"]["convolution"] for r in rows])
        yield f"| **3×3 layers, geometric mean** | {batch} | | **{mean:.2f}** | | | |"
    yield ""


def _ratio(row: Record, peer: str) -> str:
    seconds = row["seconds"]
    return f"{seconds['sleepconv'] / seconds[peer]:.2f}" if peer in seconds else "–"


def _growth_lines(record: Record) -> Iterator[str]:
    yield "## How a 3×3 layer grows (32 channels, 16×16, batch 128 unless said)"
    yield ""
    yield "| | ms | peak MB that the layer adds |"
    yield "|---|---|---|"
    for row in record["growth"]:
        yield f"| {row['what']} {row['value']} | {row['milliseconds']:.2f} | {row['megabytes']:.1f} |"
