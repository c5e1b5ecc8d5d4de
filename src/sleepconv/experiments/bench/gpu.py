"""Speed on a GPU: layers against cuDNN, unfold and einsum, and plain PyTorch, as ratios in one run."""

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import Any

import torch

from sleepconv.experiments.bench.measure import geometric_mean, race
from sleepconv.experiments.bench.peers import layer_of_shape, layer_steps
from sleepconv.experiments.bench.roofline import RESNET18, RESNET20, Shape
from sleepconv.experiments.results.sheets import Sheet
from sleepconv.kernels import kernel_for, use_kernel

PRECISIONS = {"bfloat16": torch.bfloat16, "TF32": torch.float32}
_PEERS = ("convolution", "unfold + einsum", "batched")
_PASSES_PER_TURN = 10  # one alone would mostly time its launch


def run(
    device: str = "cuda",
    *,
    batches: Sequence[int] = (256, 32),
    shapes: Sequence[Shape] = (*RESNET20, *RESNET18),
    rounds: int = 20,
) -> dict[str, Any]:
    """Measure forward and backward of every layer on a device, and return the record.

    Raises:
        ValueError: if PyTorch has no such device.
    """
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("this PyTorch finds no GPU (torch.cuda.is_available() is False); run without --device")
    kernel = kernel_for(torch.empty(0, device=device)).__name__.rpartition(".")[2]
    record = {"device": _name(device), "torch": torch.__version__, "kernel": kernel, "date": date.today().isoformat()}
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # TF32 also for the peers that are matrix products, as for convolutions
    try:
        return record | {"layers": list(_layers(device, batches, shapes, rounds))}
    finally:
        torch.set_float32_matmul_precision(precision)


def _layers(device: str, batches: Sequence[int], shapes: Sequence[Shape], rounds: int) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for precision, dtype in PRECISIONS.items():
            for shape in shapes:
                layer = layer_of_shape(shape).to(device, dtype)
                steps = layer_steps(layer, batch, unfold=True)
                contenders = {name: _repeated(step) for name, step in steps.items()}
                contenders["batched"] = _repeated(_with_batched(steps["sleepconv"]))
                seconds = race(contenders, rounds, wait=_waiting_for(device))
                per_pass = {name: best / _PASSES_PER_TURN for name, best in seconds.items()}
                yield {"shape": shape, "batch": batch, "precision": precision, "seconds": per_pass}


def as_sheet(record: dict[str, Any]) -> Sheet:
    """Return the table of a record: the time of each layer, and its ratio to those of its peers."""
    rows = []
    for row in record["layers"]:
        ins, outs, kernel, stride, side = row["shape"]
        ours = row["seconds"]["sleepconv"]
        layer = f"{ins}→{outs}, {kernel}×{kernel}, stride {stride}, {side}×{side}"
        ratios = [f"{ours / row['seconds'][peer]:.2f}" for peer in _PEERS]
        rows.append([layer, f"{row['batch']}", row["precision"], f"{1e3 * ours:.3f}", *ratios])
    for batch, precision in dict.fromkeys((row["batch"], row["precision"]) for row in record["layers"]):
        of_these = [r["seconds"] for r in record["layers"] if (r["batch"], r["precision"]) == (batch, precision)]
        means = [f"{geometric_mean([s['sleepconv'] / s[peer] for s in of_these]):.2f}" for peer in _PEERS]
        rows.append(["geometric mean", f"{batch}", precision, "", *means])
    title = f"{record['device']}, PyTorch {record['torch']}, kernel {record['kernel']}, {record['date']}"
    columns = ["layer", "batch", "precision", "ms", "÷ cuDNN, channels last", "÷ unfold + einsum", "÷ batched"]
    notes = ["Forward and backward, best of several rounds. Please send this table to the issues of sleepconv."]
    return Sheet(title, columns, rows, notes)


def _repeated(step: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(_PASSES_PER_TURN):
            step()

    return run


def _with_batched(step: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        with use_kernel("batched"):
            step()

    return run


def _waiting_for(device: str) -> Callable[[], None]:
    return torch.cuda.synchronize if device.startswith("cuda") else lambda: None


def _name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device
