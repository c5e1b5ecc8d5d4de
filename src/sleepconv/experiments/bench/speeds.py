"""Everything that ``sleepconv bench`` measures, and the page that shows it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from sleepconv.experiments.bench.peers import (
    inference_steps,
    jax_step,
    layer_of_shape,
    layer_steps,
    networks,
    training_step,
)
from sleepconv.experiments.bench.roofline import RESNET20
from sleepconv.experiments.bench.steps import training_cost
from sleepconv.experiments.results.sheets import Sheet, number
from sleepconv.experiments.runs.machine import machine
from sleepconv.files import output_file, write_atomically
from sleepconv.kernels import native
from sleepconv.memory import keep_freed_memory

_Measured = dict[str, Any]

# The 3×3 layers of the miniature network (ResNet8 on 16×16 pixels), and a depthwise layer as ConvNeXt has it, with its
# number of groups.
MINIATURE_SHAPES = [
    (3, 16, 3, 1, 16),
    (16, 16, 3, 1, 16),
    (16, 32, 3, 2, 16),
    (32, 32, 3, 1, 8),
    (32, 64, 3, 2, 8),
    (64, 64, 3, 1, 4),
]
DEPTHWISE_SHAPE = (96, 96, 7, 1, 16, 96)

_INTRODUCTION = """\
# Speed and memory

{processor}, {threads} threads, PyTorch {torch}; {kernel}.
A large matrix product reaches {matrix_product_gflops:.0f} GFLOP/s.
Times are the best of several rounds in which the contenders take turns, forward and backward, all with freed
memory kept in the process. Below 1: faster (smaller) than the peer. `make bench` rebuilds this page.
Where one layer is in several rows, the differences between its times are the noise of the machine."""


def run(*, json_path: str | None = None, markdown_path: str | None = None, quick: bool = False) -> str:
    """Measure everything, write it to the files asked for, and return the page."""
    for path in filter(None, (json_path, markdown_path)):
        output_file(path).parent.mkdir(parents=True, exist_ok=True)
    keep_freed_memory()
    rounds = 2 if quick else 8
    record: _Measured = {"machine": _machine(), "matrix_product_gflops": matrix_product_gflops(10)}
    record["layers"] = list(_layers(rounds, batches=[32] if quick else [512, 32]))
    record["other_layers"] = list(_other_layers(rounds))
    record["steps"] = list(_steps(2 if quick else 4, batches=[128] if quick else [512, 128]))
    record["memory"] = list(_memory([128] if quick else [512]))
    record["growth"] = list(_growth(rounds))
    record["inference"] = list(_inference(rounds))
    record["training"] = training_cost(1 if quick else 3)
    page = as_markdown(record)
    if json_path:
        write_atomically(Path(json_path), json.dumps(record, indent=1) + "\n")
    if markdown_path:
        write_atomically(Path(markdown_path), page)
    return page


def _machine() -> _Measured:
    kernel = native.unavailable() or f"native, {native.instruction_set().name}"
    return {
        "processor": machine()["processor"],
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "kernel": kernel,
    }


def _layers(rounds: int, batches: list[int]) -> Iterator[_Measured]:
    for batch in batches:
        for shape in RESNET20:
            layer = layer_of_shape(shape)
            steps = layer_steps(layer, batch, unfold=batch < 512)
            slow = {"unfold + einsum": steps.pop("unfold + einsum")} if batch < 512 else {}
            if batch < 512 and (peer := jax_step(layer, batch)):
                slow["JAX"] = peer
            seconds = race(steps, rounds if batch >= 512 else 4 * rounds) | race(slow, 2)
            yield {"shape": shape, "batch": batch, "seconds": seconds, "gflop": layer_gflop(layer, batch)}


def _other_layers(rounds: int) -> Iterator[_Measured]:
    """Measure the miniature network's layers and a depthwise one against convolution alone."""
    for shape, batch in [*[(shape, 32) for shape in MINIATURE_SHAPES], (DEPTHWISE_SHAPE, 128)]:
        layer = layer_of_shape(shape)
        seconds = race(layer_steps(layer, batch, unfold=False), 4 * rounds)
        yield {"shape": shape, "batch": batch, "seconds": seconds, "gflop": layer_gflop(layer, batch)}


def _steps(rounds: int, batches: list[int]) -> Iterator[_Measured]:
    for batch in batches:
        steps = {name: training_step(make(), batch) for name, make in networks().items()}
        slow = steps.pop("unfold + einsum")
        seconds = race(steps, 2 * rounds) | race({"unfold + einsum": slow}, 1)
        yield {"batch": batch, "seconds": seconds}


def _memory(batches: list[int]) -> Iterator[_Measured]:
    for batch in batches:
        yield {"batch": batch, "gigabytes": {name: network_memory(name, batch) for name in networks()}}


def _growth(rounds: int) -> Iterator[_Measured]:
    """Measure time and memory of one layer while batch, channels or side doubles."""
    for what, values in [("batch", [64, 128, 256]), ("channels", [16, 32, 64]), ("side", [8, 16, 32])]:
        for value in values:
            sizes = {"batch": 128, "channels": 32, "side": 16} | {what: value}
            shape = (sizes["channels"], sizes["channels"], 3, 1, sizes["side"])
            layer = layer_of_shape(shape)
            steps = layer_steps(layer, sizes["batch"], unfold=False)
            seconds = race({"sleepconv": steps["sleepconv"]}, rounds)["sleepconv"]
            megabytes = 1e3 * layer_memory(shape, sizes["batch"])
            yield {"what": what, "value": value, "milliseconds": 1e3 * seconds, "megabytes": megabytes}


def _inference(rounds: int) -> Iterator[_Measured]:
    """Measure a forward pass of the 3×3 layers after their sleep."""
    for batch in (1, 32):
        for shape in RESNET20:
            if shape[2] > 1:
                yield {
                    "shape": shape,
                    "batch": batch,
                    "seconds": race(inference_steps(layer_of_shape(shape), batch), 4 * rounds),
                }


def as_markdown(record: _Measured) -> str:
    """Render the record as the page ``benchmarks/README.md``."""
    machine = record["machine"]
    sheets = [_step_sheet(record), _training_sheet(record), _layer_sheet(record)]
    if "other_layers" in record:  # records of earlier versions lack them
        sheets.append(_other_layer_sheet(record))
    sheets.append(_growth_sheet(record))
    if "inference" in record:
        sheets.append(_inference_sheet(record))
    sections = [f"## {sheet.title}\n\n{replace(sheet, title='').markdown()}" for sheet in sheets]
    return "\n\n".join([_INTRODUCTION.format(**machine, **record), *sections]) + "\n"


def _step_sheet(record: _Measured) -> Sheet:
    rows = []
    for title, measured, key, unit in [
        ("time", record["steps"], "seconds", "s"),
        ("peak memory", record["memory"], "gigabytes", "GB"),
    ]:
        for row in measured:
            ours, conv, unfold = (row[key][name] for name in ("sleepconv", "convolution", "unfold + einsum"))
            rows.append([title, f"{row['batch']}", f"{ours:.2f} {unit}", f"{ours / conv:.2f}", f"{ours / unfold:.2f}"])
    columns = ["", "batch", "sleepconv", "÷ convolution", "÷ unfold + einsum"]
    return Sheet("Training step of ResNet20", columns, rows)


def _training_sheet(record: _Measured) -> Sheet:
    titles = {
        "an epoch of the sleeping network (data, sleep every step, evaluation) ÷ convolution": "epoch ÷ convolution",
        "a step of the loop (data included) ÷ forward, backward and AdamW alone": "loop ÷ bare step",
        "a checkpoint ÷ an epoch": "checkpoint ÷ epoch",
        "seconds to read a checkpoint and resume": "seconds to go on",
    }
    rows = [[title, f"{record['training'][key]:.2f}"] for title, key in titles.items()]
    return Sheet("Training ResNet20 on CIFAR-like images, batch 512", ["", ""], rows)


def _layer_sheet(record: _Measured) -> Sheet:
    rows = []
    for row in record["layers"]:
        name = _layer_name(row["shape"])
        ours = row["seconds"]["sleepconv"]
        ratios = [
            number(ours / row["seconds"][peer] if peer in row["seconds"] else None, ".2f")
            for peer in ("convolution", "unfold + einsum", "JAX")
        ]
        speed = row["gflop"] / ours / record["matrix_product_gflops"]
        rows.append([name, f"{row['batch']}", f"{1e3 * ours:.2f}", *ratios, f"{speed:.0%}"])
    for batch in dict.fromkeys(row["batch"] for row in record["layers"]):
        seconds = [r["seconds"] for r in record["layers"] if r["batch"] == batch and r["shape"][2] == 3]
        mean = geometric_mean([s["sleepconv"] / s["convolution"] for s in seconds])
        rows.append(["**3×3 layers, geometric mean**", f"{batch}", "", f"**{mean:.2f}**", "", "", ""])
    columns = ["layer", "batch", "ms", "÷ convolution", "÷ unfold + einsum", "÷ JAX", "of the matrix product"]
    return Sheet("Layers of ResNet20", columns, rows)


def _layer_name(shape: Sequence[int]) -> str:
    ins, outs, kernel, stride, side, *groups = shape
    depthwise = "depthwise " if groups else ""
    return f"{ins}→{outs}, {depthwise}{kernel}×{kernel}, stride {stride}, {side}×{side}"


def _other_layer_sheet(record: _Measured) -> Sheet:
    rows = []
    for row in record["other_layers"]:
        ours, conv = row["seconds"]["sleepconv"], row["seconds"]["convolution"]
        rows.append([_layer_name(row["shape"]), f"{row['batch']}", f"{1e3 * ours:.2f}", f"{ours / conv:.2f}"])
    seconds = [row["seconds"] for row in record["other_layers"] if row["batch"] == 32]
    mean = geometric_mean([s["sleepconv"] / s["convolution"] for s in seconds])
    rows.append(["**3×3 layers, geometric mean**", "32", "", f"**{mean:.2f}**"])
    title = "Layers of the miniature network, and a depthwise layer"
    return Sheet(title, ["layer", "batch", "ms", "÷ convolution"], rows)


def _inference_sheet(record: _Measured) -> Sheet:
    peers = [("on grids", "sleepconv"), ("on grids", "convolution"), ("on grids, exported", "sleepconv")]

    def ratios(measured: list[_Measured]) -> list[str]:
        return [f"{geometric_mean([m['seconds'][a] / m['seconds'][b] for m in measured]):.2f}" for a, b in peers]

    rows = [
        [_layer_name(row["shape"]), f"{row['batch']}", f"{1e3 * row['seconds']['on grids']:.2f}", *ratios([row])]
        for row in record["inference"]
    ]
    for batch in dict.fromkeys(row["batch"] for row in record["inference"]):
        means = ratios([row for row in record["inference"] if row["batch"] == batch])
        rows.append(["**geometric mean**", f"{batch}", "", *(f"**{mean}**" for mean in means)])
    title = "Inference after a sleep: one filter per grid (`to_grid_convolutional`), forward only"
    return Sheet(title, ["layer", "batch", "ms", "÷ sleepconv", "÷ convolution", "as exported ÷ sleepconv"], rows)


def _growth_sheet(record: _Measured) -> Sheet:
    rows = [
        [f"{row['what']} {row['value']}", f"{row['milliseconds']:.2f}", f"{row['megabytes']:.1f}"]
        for row in record["growth"]
    ]
    title = "How a 3×3 layer grows (32 channels, 16×16, batch 128 unless stated)"
    return Sheet(title, ["", "ms", "peak MB that the layer adds"], rows)
