"""What a run is: everything that decides its result, as one small record."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from sleepconv.experiments.runs.registry import NETWORKS, RULES
from sleepconv.experiments.runs.reports import is_number
from sleepconv.files import parse_json
from sleepconv.names import did_you_mean

Connectivity = Literal["convolutional", "local", "local_after_first"]
Start = Literal["independent", "shared"]
OptimizerName = Literal["adamw", "sgd"]
Wake = Literal[
    "backprop",
    "feedback_alignment",
    "sign_symmetry",
    "kolen_pollack",
    "weight_mirrors",
    "direct_feedback_alignment",
]
Grids = Literal["given", "learned"]
Crops = Literal["random", "random_resized"]
NormStatistics = Literal["running", "reestimated"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
CHOICES: dict[str, tuple[str, ...]] = {
    "connectivity": get_args(Connectivity),
    "start": get_args(Start),
    "optimizer": get_args(OptimizerName),
    "wake": get_args(Wake),
    "grids": get_args(Grids),
    "crops": get_args(Crops),
    "statistics": get_args(NormStatistics),
    "precision": get_args(Precision),
}
_AT_LEAST = {"epochs": 1, "batch_size": 1, "repetitions": 1, "padding": 0, "warm_up": 0, "snr_every": 0, "seed": 0}
_FLAGS = ("tuning", "restart_each_epoch", "share_gradients", "share_moments", "share_feedback")
_MAY_BE_ZERO = ("weight_decay", "momentum", "slow_momentum")
_BELOW_ONE = ("momentum", "slow_momentum")
_MOST = 2**32 - 1
_DROP = 4.0


@dataclass(frozen=True)
class Run:
    """One training run, complete: the same `Run` gives the same bits on the same machine.

    The defaults are the paper's protocol for small images (appendix, Experimental details): AdamW, batch 512, 200
    epochs, learning rate divided by 4 at 1/2 and 3/4 of them.

    Attributes:
        name: of the recipe it comes from.
        dataset: as `sleepconv.experiments.data.load_task` knows it, or any name for data that `train` is given.
        network: one of this package, or one that `register_network` has registered.
        connectivity: convolutional, local, or local after a convolutional first layer.
        start: local neurons start with "independent" weights, as in the paper, or with "shared" ones, those of a
            convolution.
        learning_rate: of the optimizer, at the start. For SGD and a network that sleeps, that of a convolution with one
            filter per grid, as in `sleepconv.optim.scaled_groups`.
        weight_decay: of the optimizer.
        optimizer: adamw, the paper's, or sgd.
        momentum: of SGD, or AdamW's β₁.
        warm_up: optimizer steps over which the learning rate rises linearly at the start.
        rest_learning_rate: of the parameters that are not per neuron (BatchNorm, classifier), if it differs.
        padding: the greatest translation of training images, in pixels.
        crops: of ImageNet's training images, "random" as in the paper's text, or "random_resized" as in its published
            runs; see `sleepconv.experiments.data.load_task`.
        repetitions: translated copies of each image within a batch.
        sleep_every: optimizer steps from sleep to sleep, or None for a network that never sleeps.
        sleep_rule: instant, hebbian, circuit, network_circuit, or one that `register_rule` has registered.
        sleep_options: what else the rule takes.
        grids: who shares with whom in sleep is "given", or was "learned" from correlations before training; see
            `sleepconv.sleep.learn_all_grids_`.
        restart_each_epoch: sleep after the first step of each epoch and count from there, as the paper's published runs
            do, instead of counting over the whole run.
        share_gradients: average gradients within grids before each step; see `sleepconv.optim.share_gradients`.
        share_moments: average the optimizer's moments within grids in each sleep.
        slow_momentum: β of `sleepconv.optim.SlowMomentum`; 0 for none.
        wake: backprop, or a rule of `sleepconv.wake` that learns without weight transport. A mirror phase comes
            after every tenth step, or, in a network that sleeps, with the next sleep.
        wake_options: what else that rule takes.
        share_feedback: let sleep share the feedback weights, too.
        statistics: evaluate with BatchNorm's "running" averages, or with statistics that are "reestimated" on training
            images right before.
        epochs: at scale 1.
        scale: the fraction of the epochs that is run; the drops of the learning rate move along.
        batch_size: images in a batch over all processes, copies counted.
        tuning: train on the training part and evaluate on the validation part of the training set.
        snr_every: optimizer steps between measurements of each layer's SNR; 0 for twice an epoch.
        precision: of the responses; "auto" is bfloat16 where the device gains from it. With float16, losses are scaled
            so that small gradients do not vanish, and steps whose gradients overflow are skipped.
        seed: of everything random.

    >>> run = Run(name="mine", dataset="cifar10", connectivity="local", learning_rate=1e-3, scale=0.1)
    >>> run.scaled_epochs, [run.learning_rate_in(epoch) for epoch in (9, 10, 15)]
    (20, [0.001, 0.00025, 6.25e-05])
    """

    name: str
    dataset: str
    connectivity: Connectivity
    learning_rate: float
    weight_decay: float = 1e-2
    network: str = "resnet20"
    start: Start = "independent"
    optimizer: OptimizerName = "adamw"
    momentum: float = 0.9
    warm_up: int = 0
    rest_learning_rate: float | None = None
    padding: int = 4
    crops: Crops = "random"
    repetitions: int = 1
    sleep_every: int | None = None
    sleep_rule: str = "instant"
    sleep_options: Mapping[str, Any] = field(default_factory=dict)
    grids: Grids = "given"
    restart_each_epoch: bool = False
    share_gradients: bool = False
    share_moments: bool = False
    slow_momentum: float = 0.0
    wake: Wake = "backprop"
    wake_options: Mapping[str, Any] = field(default_factory=dict)
    share_feedback: bool = True
    statistics: NormStatistics = "running"
    epochs: int = 200
    scale: float = 1.0
    batch_size: int = 512
    tuning: bool = False
    snr_every: int = 0
    precision: Precision = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("name", "dataset", "network", "sleep_rule"):
            if not isinstance(text := getattr(self, name), str) or not text:
                raise TypeError(f"`{name}` must be a non-empty string, got {text!r}")
        if "/" in self.name or "\\" in self.name or self.name.startswith("."):
            raise ValueError(
                f"`name` must be usable as a folder's name, without / and not starting with ., got {self.name!r}"
            )
        NETWORKS.check(self.network)
        RULES.check(self.sleep_rule)
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        self._check_numbers()
        for name in _FLAGS:
            if not isinstance(flag := getattr(self, name), bool):
                raise TypeError(f"`{name}` must be true or false, got {flag!r}")
        for name, like in (("sleep_options", '{"decay": 0.01}'), ("wake_options", '{"scale": 1.0}')):
            if not isinstance(options := getattr(self, name), Mapping):
                raise TypeError(f"`{name}` must be an object, like {like}, got {options!r}")
        if self.wake == "backprop" and self.wake_options:
            raise ValueError(f"`wake_options` needs another `wake` than backprop, got {dict(self.wake_options)}")
        self._check_connectivity()
        self._check_sleep()

    def _check_connectivity(self) -> None:
        if self.connectivity != "convolutional":
            return
        if self.sleep_every is not None:
            raise ValueError("`sleep_every` needs a local connectivity: a convolution already shares its weights")
        if self.rest_learning_rate is not None:
            raise ValueError("`rest_learning_rate` needs a local connectivity: a convolution shares all its parameters")
        if self.start != "independent":
            raise ValueError(f"`start`={self.start!r} needs a local connectivity: a convolution always shares")

    def _check_sleep(self) -> None:
        for name in ("restart_each_epoch", "share_gradients", "share_moments", "slow_momentum"):
            if getattr(self, name) and self.sleep_every is None:
                raise ValueError(f"`{name}` needs a network that sleeps; set `sleep_every`")
        if self.grids == "learned" and self.sleep_every is None:
            raise ValueError("`grids`='learned' needs a network that sleeps; set `sleep_every`")
        if self.share_gradients and self.sleep_every != 1:
            raise ValueError(f"`share_gradients` needs sleep_every=1, got {self.sleep_every}")

    def _check_numbers(self) -> None:
        for name, least in _AT_LEAST.items():
            _check_whole(name, getattr(self, name), least)
        if self.sleep_every is not None:
            _check_whole("sleep_every", self.sleep_every, 1)
        for name in ("learning_rate", "weight_decay", "rest_learning_rate", "momentum", "slow_momentum", "scale"):
            value = getattr(self, name)
            if value is None and name == "rest_learning_rate":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"`{name}` must be a number, got {value!r}")
            if not is_number(value) or value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
                bound = "at least 0" if name in _MAY_BE_ZERO else "above 0"
                raise ValueError(f"`{name}` must be finite and {bound}, got {value}")
            if name in _BELOW_ONE and value >= 1:
                raise ValueError(f"`{name}` must be below 1, got {value}")

    @property
    def title(self) -> str:
        """Name, scale and seed, as messages name a run."""
        return f"{self.name} scale {self.scale:g} seed {self.seed}"

    @property
    def scaled_epochs(self) -> int:
        """The number of epochs at this scale, at least one."""
        return max(1, round(self.epochs * self.scale))

    def learning_rate_in(self, epoch: int) -> float:
        """Return the learning rate of an epoch (from 0), divided by 4 at 1/2 and again at 3/4, without warm-up."""
        drops = sum(epoch >= int(self.scaled_epochs * part) > 0 for part in (0.5, 0.75))
        return self.learning_rate / _DROP**drops

    def never_sleeps(self, steps: float) -> bool:
        """Return whether a network that should sleep would be trained for fewer steps than to its first sleep.

        >>> run = Run(name="a", dataset="digits", connectivity="local", learning_rate=1e-3, sleep_every=100)
        >>> run.never_sleeps(99), run.never_sleeps(100)
        (True, False)
        """
        return self.sleep_every is not None and not self.restart_each_epoch and steps < self.sleep_every

    def as_json(self) -> str:
        """Return all fields, in their order, as JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Run":
        """Read what `as_json` returned.

        >>> run = Run(name="mine", dataset="digits", connectivity="convolutional", learning_rate=1e-2)
        >>> Run.from_json(run.as_json()) == run
        True
        """
        values = parse_json(text)
        if not isinstance(values, dict):
            raise ValueError(f"a run must be a JSON object, got {type(values).__name__}")
        return cls(**checked_fields(values))

    def changed(self, **changes: Any) -> "Run":
        """Return a variant of this run.

        >>> Run(name="a", dataset="digits", connectivity="local", learning_rate=1e-3).changed(seed=3).seed
        3
        """
        return replace(self, **checked_fields(changes))


def checked_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Return these values if a run has fields of these names; otherwise raise an error that suggests the nearest."""
    known = [f.name for f in fields(Run)]
    for name in values:
        if name not in known:
            raise ValueError(f"a run has no field {name!r}{did_you_mean(name, known)}")
    return values


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"`{name}` must be an int, got {value!r}")
    if not least <= value <= _MOST:
        raise ValueError(f"`{name}` must be at least {least} and below 2**32, got {value}")
