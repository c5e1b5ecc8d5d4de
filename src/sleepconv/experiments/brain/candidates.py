"""What is scored: trained runs, their networks before training, and pixels."""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, conv2d, interpolate

from sleepconv.brain.activations import comparable_layers, find_layers
from sleepconv.brain.recordings import Pictures
from sleepconv.experiments.data import IMAGENET, Statistics, load_task
from sleepconv.experiments.data.description import StrPath
from sleepconv.experiments.runs import Run, RunFolder, find_runs
from sleepconv.experiments.runs.folder import WEIGHTS
from sleepconv.experiments.training import build_network
from sleepconv.experiments.training.checkpoints import read_tensors

ORIENTATIONS = 4
WIDTHS = (1.5, 3.0)
REACH = 7


def pixels() -> nn.Module:
    """A network whose one layer, ``pixels``, is its input.

    >>> pixels()(torch.zeros(2, 3, 4, 4)).shape
    torch.Size([2, 48])
    """
    return nn.Sequential(OrderedDict(pixels=nn.Flatten()))


class OrientedEnergy(nn.Module):
    """Energy of Gabor filters (four orientations, two scales) on luminance, pooled to ``cells`` × ``cells``.

    >>> OrientedEnergy()(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 512])
    """

    def __init__(self, cells: int = 8) -> None:
        super().__init__()
        self.cells = cells
        pairs = [quadrature_pair(math.pi * i / ORIENTATIONS, width) for width in WIDTHS for i in range(ORIENTATIONS)]
        self.register_buffer("filters", torch.cat(pairs)[:, None])

    def forward(self, x: Tensor) -> Float32[Tensor, "images features"]:
        """The pooled energies of a batch of images."""
        answers = conv2d(x.mean(dim=1, keepdim=True), self.get_buffer("filters"), padding=REACH)
        energy = answers.unflatten(1, (-1, 2)).square().sum(dim=2).sqrt()
        return adaptive_avg_pool2d(energy, self.cells).flatten(1)


def quadrature_pair(angle: float, width: float) -> Float32[Tensor, "2 height width"]:
    """An even and an odd Gabor filter without mean and of length 1.

    >>> quadrature_pair(0.0, 1.5).flatten(1).norm(dim=1).round(decimals=3)
    tensor([1., 1.])
    """
    axis = torch.arange(-REACH, REACH + 1.0)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    phase = (columns * math.cos(angle) + rows * math.sin(angle)) * math.pi / (1.5 * width)
    window = torch.exp(-(rows**2 + columns**2) / (2 * width**2))
    pair = torch.stack([window * torch.cos(phase), window * torch.sin(phase)])
    pair -= pair.mean(dim=(1, 2), keepdim=True)
    return pair / pair.flatten(1).norm(dim=1)[:, None, None]


# Of the 50,000 training images each, so that networks can be scored without the images that they were trained on.
CIFAR10 = Statistics(
    (125.306918046875, 122.95039414062497, 113.86538318359375),
    (62.993219278136934, 62.088707640014185, 66.70489964063097),
)
CIFAR100 = Statistics(
    (129.30416560546874, 124.06996269531253, 112.43405005859375),
    (68.1702428992064, 65.39180804385748, 70.41837018804938),
)
STATISTICS = {"cifar10": CIFAR10, "cifar100": CIFAR100, "tiny-imagenet": IMAGENET, "imagenet": IMAGENET}
LUMINANCE = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Preparation:
    """Bring images to ``input_size`` (channels, height, width) and normalise them as in training.

    Grey images get three equal channels for a network that sees colour, and colours become luminance for one that
    does not. The largest middle part of the input's shape is scaled to the input's size, with antialiasing.

    >>> Preparation((3, 32, 32), CIFAR10)(np.zeros((5, 96, 96), np.uint8)).shape
    torch.Size([5, 3, 32, 32])
    """

    input_size: tuple[int, int, int]
    statistics: Statistics

    def __call__(self, images: Pictures) -> Float32[Tensor, "images channels height width"]:
        """The network's input for a batch of images."""
        pixels = torch.from_numpy(images.astype(np.float32))
        pixels = pixels[:, None] if pixels.ndim == 3 else pixels.movedim(3, 1)
        pixels = _scaled(_coloured(pixels, self.input_size[0]), self.input_size[1:])
        scale, shift = self.statistics.scale_and_shift(pixels.device)
        return pixels * scale + shift


def preparation_for(dataset: str, input_size: tuple[int, int, int], data_dir: StrPath | None = None) -> Preparation:
    """The preparation for a network that was trained on a dataset.

    >>> preparation_for("cifar10", (3, 32, 32)).statistics == CIFAR10
    True
    """
    statistics = STATISTICS.get(dataset) or load_task(dataset, data_dir=data_dir).train.statistics
    return Preparation(input_size, statistics)


def _coloured(pixels: Tensor, channels: int) -> Tensor:
    if pixels.shape[1] == channels:
        return pixels
    if channels == 3:
        return pixels.expand(-1, 3, -1, -1)
    return (pixels * torch.tensor(LUMINANCE)[:, None, None]).sum(dim=1, keepdim=True)


def _scaled(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    height, width = pixels.shape[2:]
    scale = min(height / size[0], width / size[1])
    part = [round(extent * scale) for extent in size]
    top, left = (height - part[0]) // 2, (width - part[1]) // 2
    pixels = pixels[:, :, top : top + part[0], left : left + part[1]]
    return pixels if tuple(part) == size else interpolate(pixels, size, mode="bilinear", antialias=True)


CONNECTIVITY = {"convolutional": "conv", "local": "LC", "local_after_first": "LC after first"}


@dataclass(frozen=True)
class Candidate:
    """A network to score.

    Attributes:
        name: of its record.
        row: of the table that it belongs to.
        kind: trained, untrained or pixels.
        build: makes the network.
        prepare: turns images into its input.
        layers: to compare with neurons; all `comparable_layers` if None.
        run: what it was trained with.
        summary: how its training ended.
        answers_cifar10: whether it gives one of CIFAR-10's classes as its answer.
    """

    name: str
    row: str
    kind: str
    build: Callable[[], nn.Module]
    prepare: Preparation
    layers: Sequence[str] | None = None
    run: dict[str, Any] | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    answers_cifar10: bool = False

    def network(self) -> tuple[nn.Module, list[str]]:
        """The network in evaluation mode and the layers to compare."""
        model = self.build().eval()
        return model, list(find_layers(model, self.layers)) if self.layers else comparable_layers(model)


def row_name(run: Run) -> str:
    """A run's row in the table.

    >>> row_name(Run(name="mine", dataset="cifar10", connectivity="local", learning_rate=1e-3, sleep_every=10))
    'ws(10)'
    """
    if run.sleep_every is None:
        return CONNECTIVITY[run.connectivity]
    rule = "" if run.sleep_rule == "instant" else f", {run.sleep_rule}"
    first = ", after first" if run.connectivity == "local_after_first" else ""
    return f"ws({run.sleep_every}{rule}{first})"


def candidates(
    paths: Sequence[StrPath],
    *,
    untrained: bool = False,
    with_pixels: bool = False,
    layers: Sequence[str] | None = None,
    data_dir: StrPath | None = None,
) -> list[Candidate]:
    """The finished runs at and below these paths, and the baselines asked for.

    An untrained network is scored once for each architecture, connectivity and seed: sleep makes no difference before
    training. Pixels are those of the first run's input.
    """
    for path in paths:
        if not any(_has_weights(folder) for folder in find_runs(path)):
            raise FileNotFoundError(f"no finished run in {path}: none has a {WEIGHTS}")
    folders = [folder for folder in find_runs(*paths) if _has_weights(folder)]
    trained = [_trained(folder, layers, data_dir) for folder in folders]
    _check_names(trained, folders)
    found = list(trained)
    if untrained:
        found += {c.name: c for c in (_untrained(folder, layers, data_dir) for folder in folders)}.values()
    return [*found, pixel_candidate(trained[0].prepare)] if with_pixels else found


def without_weights(paths: Sequence[StrPath]) -> list[str]:
    """The runs at and below these paths that cannot be scored."""
    return [str(folder.path) for folder in find_runs(*paths) if not _has_weights(folder)]


def _has_weights(folder: RunFolder) -> bool:
    return (folder.path / WEIGHTS).is_file()


def pixel_candidate(prepare: Preparation) -> Candidate:
    """The input itself as a network of one layer.

    >>> pixel_candidate(preparation_for("cifar10", (3, 32, 32))).network()[1]
    ['pixels']
    """
    return Candidate("pixels", "pixels", "pixels", pixels, prepare, layers=("pixels",))


def _check_names(trained: Sequence[Candidate], folders: Sequence[RunFolder]) -> None:
    paths: dict[str, RunFolder] = {}
    for candidate, folder in zip(trained, folders, strict=True):
        if candidate.name in paths:
            both = f"{paths[candidate.name].path} and {folder.path}"
            raise ValueError(f"{both} would share the record {candidate.name}; score them with different --out")
        paths[candidate.name] = folder


def _trained(folder: RunFolder, layers: Sequence[str] | None, data_dir: StrPath | None) -> Candidate:
    run = folder.recipe()
    prepare, classes = _input(folder, run, data_dir)
    return Candidate(
        name=f"{run.name}-scale-{run.scale:g}-seed-{run.seed}",
        row=row_name(run),
        kind="trained",
        build=folder.load_model,
        prepare=prepare,
        layers=layers,
        run=asdict(run),
        summary=folder.summary() or {},
        answers_cifar10=(run.dataset, classes) == ("cifar10", 10),
    )


def _untrained(folder: RunFolder, layers: Sequence[str] | None, data_dir: StrPath | None) -> Candidate:
    run = folder.recipe()
    prepare, classes = _input(folder, run, data_dir)
    row = CONNECTIVITY[run.connectivity]
    return Candidate(
        name=f"untrained-{run.network}-{run.connectivity}-{run.dataset}-seed-{run.seed}",
        row=row,
        kind="untrained",
        build=lambda: build_network(run, prepare.input_size, classes),
        prepare=prepare,
        layers=layers,
        run={"network": run.network, "connectivity": run.connectivity, "dataset": run.dataset, "seed": run.seed},
        answers_cifar10=(run.dataset, classes) == ("cifar10", 10),
    )


def _input(folder: RunFolder, run: Run, data_dir: StrPath | None) -> tuple[Preparation, int]:
    _, facts = read_tensors(folder.path / WEIGHTS)
    channels, height, width = facts["input_size"]
    return preparation_for(run.dataset, (channels, height, width), data_dir), int(facts["classes"])
