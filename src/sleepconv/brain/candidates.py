"""What is scored: trained runs, their networks before training, and pixels."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from sleepconv.brain.baselines import pixels
from sleepconv.brain.layers import comparable_layers, find_layers
from sleepconv.brain.preparation import Preparation, preparation_for
from sleepconv.data.locations import StrPath
from sleepconv.training import Run, RunFolder, build_network, find_runs
from sleepconv.training.checkpoints import read_tensors
from sleepconv.training.folder import WEIGHTS

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
