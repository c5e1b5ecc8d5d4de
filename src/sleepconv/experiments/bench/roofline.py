"""What bounds a layer on a GPU, computed from its bytes and operations; nothing here is measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from sleepconv.experiments.results.sheets import Sheet

# Input and output channels, kernel, stride and input side of every layer of ResNet20 on 32×32 pixels, and of the
# half-width ResNet18 on 224×224.
RESNET20 = [
    (3, 16, 3, 1, 32),
    (16, 16, 3, 1, 32),
    (16, 32, 3, 2, 32),
    (16, 32, 1, 2, 32),
    (32, 32, 3, 1, 16),
    (32, 64, 3, 2, 16),
    (32, 64, 1, 2, 16),
    (64, 64, 3, 1, 8),
]
RESNET18 = [
    (3, 32, 7, 2, 224),
    (32, 32, 3, 1, 56),
    (32, 64, 3, 2, 56),
    (32, 64, 1, 2, 56),
    (64, 64, 3, 1, 28),
    (64, 128, 3, 2, 28),
    (64, 128, 1, 2, 28),
    (128, 128, 3, 1, 14),
    (128, 256, 3, 2, 14),
    (128, 256, 1, 2, 14),
    (256, 256, 3, 1, 7),
]

# Of NVIDIA's data sheets: bfloat16 operations per second on tensor cores (dense), and bytes per second of memory.
GPUS = {"A100 (SXM, 80 GB)": (312e12, 2.04e12), "H100 (SXM)": (989e12, 3.35e12), "B200": (2250e12, 8.0e12)}
_BATCHES = (32, 128, 512)
_BYTES = 2  # of one number in bfloat16
_INTRODUCTION = (
    "Computed from sizes and data sheets, not measured: no GPU has run it yet. Forward pass and both gradients in "
    "bfloat16, each tensor read or written once per pass. A layer is bound by memory below the batch in the fourth "
    "column, and by arithmetic above. The other columns are the least time, in units of the least time of the "
    "convolution of the same shape."
)

Shape = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class Work:
    """Operations and bytes of forward pass and both gradients of one layer.

    >>> Work(flop=6e12, bytes=1e12).seconds(3e12, 2e12)
    2.0
    """

    flop: float
    bytes: float

    def seconds(self, flops: float, bandwidth: float) -> float:
        """Return the least time, that of the slower of arithmetic and memory."""
        return max(self.flop / flops, self.bytes / bandwidth)


def work(shape: Shape, batch: int, *, local: bool = True) -> Work:
    """Count the work of a layer of (in channels, out channels, kernel, stride, input side), or of its convolution.

    >>> work((64, 64, 3, 1, 8), 1).flop == 6 * 64 * 64 * 9 * 64
    True
    """
    ins, outs, kernel, stride, side = shape
    positions = ((side - 1) // stride + 1) ** 2
    filters = ins * outs * kernel**2
    x, y, weights = batch * ins * side**2, batch * outs * positions, filters * (positions if local else 1)
    # Each of the three passes reads two of input, output and weight (or their gradients) and writes the third.
    return Work(6.0 * batch * positions * filters, 3.0 * _BYTES * (x + y + weights))


def balanced_batch(shape: Shape, flops: float, bandwidth: float) -> float:
    """Return the batch above which arithmetic, and not memory, bounds a layer; infinity if none does.

    >>> round(balanced_batch((64, 64, 3, 1, 8), *GPUS["A100 (SXM, 80 GB)"]))
    326
    """
    one, two = work(shape, 1), work(shape, 2)
    fixed, growing = 2 * one.bytes - two.bytes, two.bytes - one.bytes
    gained = one.flop / flops - growing / bandwidth
    return fixed / bandwidth / gained if gained > 0 else inf


def sheet(name: str, shapes: Sequence[Shape]) -> Sheet:
    """Return the table of one network."""
    rows = []
    for shape in shapes:
        ins, outs, kernel, stride, side = shape
        weights = 1e-6 * _BYTES * ins * outs * kernel**2 * ((side - 1) // stride + 1) ** 2
        for gpu, speed in GPUS.items():
            limit = balanced_batch(shape, *speed)
            floors = [
                work(shape, batch).seconds(*speed) / work(shape, batch, local=False).seconds(*speed)
                for batch in _BATCHES
            ]
            layer = f"{ins}→{outs}, {kernel}×{kernel}, stride {stride}, {side}×{side}"
            known = "always memory" if limit == inf else f"{limit:.0f}"
            rows.append([layer, f"{weights:.1f}", gpu, known, *(f"{floor:.1f}" for floor in floors)])
    columns = ["layer", "MB of weights", "GPU", "batch where arithmetic takes over"]
    return Sheet(f"{name} (computed)", [*columns, *(f"batch {b} ÷ convolution" for b in _BATCHES)], rows)


def page() -> str:
    """Return the page ``benchmarks/roofline.md``."""
    sheets = [sheet("ResNet20, 32×32 pixels", RESNET20), sheet("Half-width ResNet18, 224×224 pixels", RESNET18)]
    sections = [f"### {s.title}\n\n{replace(s, title='').markdown()}" for s in sheets]
    introduction = "## What bounds a layer on a GPU\n\n" + _INTRODUCTION
    return "\n\n".join([introduction, "`sleepconv bench --roofline` rebuilds this page.", *sections]) + "\n"
