"""Networks to score: trained runs, the same networks before training, and the pixels themselves."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from sleepconv.brain.activations import Preparation, comparable_layers, find_layers
from sleepconv.experiments.data import IMAGENET, ChannelStatistics, Images, cifar10, cifar10_16x16, load_task
from sleepconv.experiments.data.description import StrPath
from sleepconv.experiments.runs import Run, RunFolder, find_runs
from sleepconv.experiments.runs.folder import WEIGHTS
from sleepconv.experiments.training import build_network
from sleepconv.experiments.training.checkpoints import read_tensors

# Measured on the 50,000 training images, so that networks can be scored without their training data.
_CIFAR10 = ChannelStatistics(
    (125.306918046875, 122.95039414062497, 113.86538318359375),
    (62.993219278136934, 62.088707640014185, 66.70489964063097),
)
_CIFAR10_16X16 = ChannelStatistics(
    (125.30635351562499, 122.94970976562496, 113.86479937499999),
    (60.70947641695104, 59.844391579081645, 64.66401710725408),
)
_CIFAR100 = ChannelStatistics(
    (129.30416560546874, 124.06996269531253, 112.43405005859375),
    (68.1702428992064, 65.39180804385748, 70.41837018804938),
)
_STATISTICS = {
    "cifar10": _CIFAR10,
    "cifar10-16x16": _CIFAR10_16X16,
    "cifar100": _CIFAR100,
    "tiny-imagenet": IMAGENET,
    "imagenet": IMAGENET,
}
_CIFAR10_READERS = {"cifar10": cifar10, "cifar10-16x16": cifar10_16x16}
_CONNECTIVITY = {"convolutional": "conv", "local": "LC", "local_after_first": "LC after first"}
_RULES = {"hebbian": "Hebbian", "network_circuit": "network circuit"}
_ON_PATCHES = {"small_vit": "ViT", "mlp_mixer": "Mixer"}
_CONNECTIVITY_ON_PATCHES = {
    "convolutional": "shared",
    "local": "per patch",
    "local_after_first": "per patch after first",
}


@dataclass(frozen=True)
class Candidate:
    """A network to score.

    Attributes:
        name: of its record.
        row: its row in the table.
        kind: trained, untrained or pixels.
        build: makes the network.
        prepare: turns images into its input.
        layers: to compare with neurons; by default all `comparable_layers`.
        run: the recipe that it was trained with.
        summary: how its training ended.
        read_cifar10: reads CIFAR-10 at the size it was trained with; None if its outputs are other classes.
    """

    name: str
    row: str
    kind: str
    build: Callable[[], nn.Module]
    prepare: Preparation
    layers: Sequence[str] | None = None
    run: dict[str, Any] | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    read_cifar10: Callable[..., Images] | None = None

    def network(self) -> tuple[nn.Module, list[str]]:
        """Build the network in evaluation mode, and name the layers to compare."""
        model = self.build().eval()
        return model, list(find_layers(model, self.layers)) if self.layers else comparable_layers(model)


def candidates(
    paths: Sequence[StrPath],
    *,
    untrained: bool = False,
    with_pixels: bool = False,
    layers: Sequence[str] | None = None,
    data_dir: StrPath | None = None,
) -> list[Candidate]:
    """Find the finished runs at and below these paths, and add the baselines asked for.

    There is one untrained network for each architecture, connectivity and seed: sleep makes no difference before
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
    return [*found, _pixels(trained[0].prepare)] if with_pixels else found


def runs_without_weights(paths: Sequence[StrPath]) -> list[str]:
    """Name the runs at and below these paths that cannot be scored."""
    return [str(folder.path) for folder in find_runs(*paths) if not _has_weights(folder)]


def _row_name(run: Run) -> str:
    """Name a run's row in the table.

    >>> _row_name(Run(name="mine", dataset="cifar10", connectivity="local", learning_rate=1e-3, sleep_every=10))
    'ws(10)'
    >>> run = Run("mine", "cifar10", connectivity="local", learning_rate=1e-3, sleep_every=10, slow_momentum=0.8)
    >>> _row_name(run)
    'ws(10), slow momentum'
    >>> _row_name(Run(name="mine", dataset="cifar10", connectivity="local", learning_rate=1e-3, repetitions=4))
    'LC, 4 reps'
    >>> _row_name(run.changed(slow_momentum=0, sleep_rule="network_circuit", grids="learned"))
    'ws(10, network circuit), learned grids'
    >>> _row_name(run.changed(slow_momentum=0, network="small_vit", connectivity="local_after_first"))
    'ViT, per patch after first, ws(10)'
    >>> _row_name(Run("mine", "cifar10", connectivity="convolutional", learning_rate=1e-3, wake="feedback_alignment"))
    'conv, feedback alignment'
    """
    ending = f", {run.repetitions} reps" * (run.repetitions > 1)
    ending += f", {run.wake.replace('_', ' ')}" * (run.wake != "backprop")
    if run.sleep_every is None:
        return _connectivity(run) + ending
    rule = "" if run.sleep_rule == "instant" else f", {_RULES.get(run.sleep_rule, run.sleep_rule)}"
    on_patches = run.network in _ON_PATCHES
    first = ", after first" * (run.connectivity == "local_after_first" and not on_patches)
    treatment = ", shared gradients" * run.share_gradients + ", slow momentum" * bool(run.slow_momentum)
    periods = ", two periods" * isinstance(run.sleep_options.get("period"), (list, tuple))
    grids = ", learned grids" * (run.grids == "learned")
    patches = f"{_connectivity(run)}, " * on_patches
    return f"{patches}ws({run.sleep_every}{rule}{first}){treatment}{periods}{grids}{ending}"


def _connectivity(run: Run) -> str:
    """Name the network's connectivity, with the network if it is one on patches, which the paper's table does not have.

    >>> _connectivity(Run("mine", "cifar10", connectivity="local", learning_rate=1e-3, network="small_vit"))
    'ViT, per patch'
    """
    if run.network in _ON_PATCHES:
        return f"{_ON_PATCHES[run.network]}, {_CONNECTIVITY_ON_PATCHES[run.connectivity]}"
    return _CONNECTIVITY[run.connectivity]


def preparation_for(dataset: str, input_size: tuple[int, int, int], data_dir: StrPath | None = None) -> Preparation:
    """Return the preparation of images for a network that was trained on a dataset.

    >>> preparation_for("imagenet", (3, 224, 224)).mean[0] / 255
    0.485
    """
    statistics = _STATISTICS.get(dataset) or load_task(dataset, data_dir=data_dir).train.statistics
    return Preparation(input_size, statistics.mean, statistics.std)


def _has_weights(folder: RunFolder) -> bool:
    return (folder.path / WEIGHTS).is_file()


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
        row=_row_name(run),
        kind="trained",
        build=folder.load_model,
        prepare=prepare,
        layers=layers,
        run=asdict(run),
        summary=folder.summary() or {},
        read_cifar10=_CIFAR10_READERS.get(run.dataset) if classes == 10 else None,
    )


def _untrained(folder: RunFolder, layers: Sequence[str] | None, data_dir: StrPath | None) -> Candidate:
    run = folder.recipe()
    prepare, classes = _input(folder, run, data_dir)
    return Candidate(
        name=f"untrained-{run.network}-{run.connectivity}-{run.dataset}-seed-{run.seed}",
        row=_connectivity(run),
        kind="untrained",
        build=lambda: build_network(run, prepare.input_size, classes),
        prepare=prepare,
        layers=layers,
        run={"network": run.network, "connectivity": run.connectivity, "dataset": run.dataset, "seed": run.seed},
        read_cifar10=_CIFAR10_READERS.get(run.dataset) if classes == 10 else None,
    )


def _pixels(prepare: Preparation) -> Candidate:
    """Make a network whose only layer, ``pixels``, is its input.

    >>> _pixels(preparation_for("cifar10", (3, 32, 32))).network()[1]
    ['pixels']
    """
    return Candidate("pixels", "pixels", "pixels", lambda: nn.Sequential(OrderedDict(pixels=nn.Flatten())), prepare)


def _input(folder: RunFolder, run: Run, data_dir: StrPath | None) -> tuple[Preparation, int]:
    """Return the preparation of a run's images, and its number of classes."""
    _, facts = read_tensors(folder.path / WEIGHTS)
    channels, height, width = facts["input_size"]
    return preparation_for(run.dataset, (channels, height, width), data_dir), int(facts["classes"])
