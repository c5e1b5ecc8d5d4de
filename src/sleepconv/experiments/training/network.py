"""What a run asks for: its network, sleep and optimizer."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from sleepconv.experiments.runs.registry import NETWORKS, RULES
from sleepconv.experiments.runs.run import Run
from sleepconv.models import mlp_mixer, resnet8, resnet18, resnet20, small_vit, tanh_network, three_layers
from sleepconv.models.patch_models import PatchModel
from sleepconv.nn import to_locally_connected, to_per_patch
from sleepconv.optim import scaled_groups
from sleepconv.sleep import Circuit, Hebbian, Instant, LateralLearning, NetworkCircuit, Rule, Sleep, learn_all_grids_
from sleepconv.sleep.layers import sleeping_layers, unwrapped
from sleepconv.wake import WakeRule, without_weight_transport
from sleepconv.wake.wake_rules import RULES as WAKE_RULES

_OUR_NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {
    "resnet8": lambda channels, classes: _for_colour(channels, resnet8(classes)),
    "resnet20": lambda channels, classes: _for_colour(channels, resnet20(classes)),
    "resnet18": lambda channels, classes: _for_colour(channels, resnet18(classes)),
    "resnet18_3x3": lambda channels, classes: _for_colour(channels, resnet18(classes, stem="3x3")),
    "small_vit": lambda channels, classes: _for_colour(channels, small_vit(classes, image_size=16)),
    "mlp_mixer": lambda channels, classes: _for_colour(channels, mlp_mixer(classes, image_size=16)),
    "tanh_network": lambda channels, classes: _for_colour(channels, tanh_network(classes)),
    "three_layers": lambda channels, classes: three_layers(classes, in_channels=channels),
}
_KEPT_CONVOLUTIONS = {"local": 0, "local_after_first": 1}
_OUR_RULES: dict[str, Callable[..., Rule]] = {
    "instant": Instant,
    "hebbian": Hebbian,
    "circuit": Circuit,
    "network_circuit": NetworkCircuit,
}
for _registry, _ours in ((NETWORKS, _OUR_NETWORKS), (RULES, _OUR_RULES)):
    for _name, _build in _ours.items():
        _registry.add(_name, _build)


def build_network(run: Run, input_size: tuple[int, int, int], num_classes: int) -> nn.Module:
    """Build the network of a run as it is before training; its weights depend on the run's seed alone.

    >>> run = Run(name="mine", dataset="cifar10", connectivity="convolutional", learning_rate=1e-2)
    >>> type(build_network(run, (3, 32, 32), 10)).__name__
    'ResNetCIFAR'
    """
    with torch.random.fork_rng():
        torch.manual_seed(run.seed)
        model = NETWORKS[run.network](input_size[0], num_classes)
        sample = torch.zeros(1, *input_size)
        if run.connectivity == "convolutional":
            model = model.to(memory_format=torch.channels_last)
        else:
            kept, shared = _KEPT_CONVOLUTIONS[run.connectivity], run.start == "shared"
            model = to_locally_connected(model, sample, keep_first=kept, copy_weights=shared, inplace=True)
            if isinstance(model, PatchModel):
                model = to_per_patch(model, sample, copy_weights=shared, inplace=True)
        if run.grids == "learned":
            learn_all_grids_(model, image_shape=input_size, learning=LateralLearning(seed=run.seed))
        if run.wake == "backprop":
            return model
        options: dict[str, Any] = {"sample_input": sample, "share_in_sleep": run.share_feedback, "inplace": True}
        return without_weight_transport(model, build_wake_rule(run.wake, run.wake_options), **options)


def build_sleep(run: Run, model: nn.Module) -> Sleep | None:
    """Build the sleep of a run, or return None if its network never sleeps.

    >>> run = Run(name="mine", dataset="cifar10", connectivity="local", learning_rate=1e-3)
    >>> build_sleep(run, nn.Identity()) is None
    True
    """
    if run.sleep_every is None:
        return None
    return Sleep(
        model,
        every=run.sleep_every,
        rule=build_rule(run.sleep_rule, run.sleep_options),
        restart_each_epoch=run.restart_each_epoch,
    )


def build_optimizer(run: Run, model: nn.Module, sleep: Sleep | None, *, fused: bool) -> Optimizer:
    """Build the optimizer of a run; each group's rate at the start of training is kept as its ``initial_lr``.

    >>> run = Run(name="mine", dataset="cifar10", connectivity="local", optimizer="sgd", learning_rate=0.1)
    >>> model = to_locally_connected(nn.Conv2d(1, 1, 3), torch.zeros(1, 1, 8, 8))
    >>> build_optimizer(run, model, Sleep(model, every=1), fused=False).param_groups[0]["lr"]
    0.4
    """
    rates: dict[str, Any] = {"lr": run.learning_rate, "weight_decay": run.weight_decay}
    groups: Any = model.parameters()
    if run.optimizer == "sgd" and sleep is not None:
        groups = scaled_groups(sleep, rest_lr=run.rest_learning_rate, **rates)
    elif run.rest_learning_rate is not None:
        layers: dict[str, Any] = sleeping_layers(unwrapped(model))
        neurons = {id(layer.weight): layer.weight for layer in layers.values()}
        rest = [parameter for parameter in model.parameters() if id(parameter) not in neurons]
        groups = [{"params": list(neurons.values())}, {"params": rest, "lr": run.rest_learning_rate}]
    rates["fused"] = fused
    if run.optimizer == "sgd":
        optimizer: Optimizer = torch.optim.SGD(groups, momentum=run.momentum, **rates)
    else:
        optimizer = torch.optim.AdamW(groups, betas=(run.momentum, 0.999), **rates)
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer


def build_rule(name: str, options: Mapping[str, Any]) -> Rule:
    """Build the rule of this name with these options; a ValueError says which of them do not fit.

    >>> build_rule("hebbian", {"decay": 0.01}).decay
    0.01
    """
    try:
        return RULES[name](**options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sleep_options={dict(options)} do not fit the rule {name!r}: {error}") from error


def build_wake_rule(name: str, options: Mapping[str, Any]) -> WakeRule:
    """Build the rule of learning of this name with these options; a ValueError says which of them do not fit.

    >>> build_wake_rule("kolen_pollack", {"scale": 0.5}).scale
    0.5
    """
    try:
        return WAKE_RULES[name](**options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"wake_options={dict(options)} do not fit the rule {name!r}: {error}") from error


def _for_colour(channels: int, model: nn.Module) -> nn.Module:
    if channels != 3:
        raise ValueError(f"this network needs images with 3 channels, got {channels}")
    return model
