"""A network that learns: it, its optimizer, its sleep, and how far it has come."""

import time
from collections.abc import Mapping
from math import ceil, isfinite, isnan
from typing import Any

import torch
from torch import Tensor, nn

from sleepconv.experiments.data import Task
from sleepconv.experiments.runs.run import Run
from sleepconv.experiments.training.evaluation import Tally, summed_loss
from sleepconv.experiments.training.network import build_network, build_optimizer, build_sleep
from sleepconv.experiments.training.parallel import Place, Sharding, distribute
from sleepconv.functional.sharing import neurons_per_grid
from sleepconv.optim import SlowMomentum, share_gradients, share_moments
from sleepconv.sleep import SleepRecord
from sleepconv.sleep.compact import compact_state, load_compact_state
from sleepconv.sleep.distributed import full_tensor, sharded_like
from sleepconv.sleep.layers import SleepingLayer, layer_snrs, unwrapped
from sleepconv.wake import alignment, mirror_, mirror_in_sleep
from sleepconv.wake.mirrors import mirrors

MODEL, OPTIMIZER, SLOW_MOMENTUM = "model/", "optimizer/", "slow_momentum/"
_MIRROR_EVERY = 10  # steps
_SECONDS = ("seconds", "cpu_seconds", "sleep_seconds")


class DivergedError(RuntimeError):
    """Loss, weights or SNR are no longer numbers.

    >>> issubclass(DivergedError, RuntimeError)
    True
    """


class Learner:
    """Everything that changes in training; what a checkpoint holds and nothing else."""

    def __init__(self, run: Run, task: Task, place: Place, *, steps_per_epoch: int, sharding: Sharding = "ddp") -> None:
        self.run, self.place, self.steps_per_epoch = run, place, steps_per_epoch
        network = build_network(run, task.input_size, len(task.classes))
        self.parameters = sum(parameter.numel() for parameter in network.parameters())
        self.model = distribute(network, place, sharding)
        fused = sharding == "ddp" or place.world_size == 1
        self.sleep = build_sleep(run, self.model)
        self.optimizer = build_optimizer(run, self.model, self.sleep, fused=fused)
        self.scaler = place.scaler()
        self.slow_momentum = self._help_to_learn()
        self.layers = {
            name: layer
            for name, layer in unwrapped(self.model).named_modules()
            if isinstance(layer, SleepingLayer) and int(neurons_per_grid(layer.weight, layer.grids).max()) > 1
        }
        self.step = 0
        self.start_epoch()

    def _help_to_learn(self) -> SlowMomentum | None:
        """Let the optimizer know who shares, as the run says."""
        if self.sleep is None:
            return None
        if mirrors(self.model):
            mirror_in_sleep(self.sleep, every=_MIRROR_EVERY)
        if self.run.share_gradients:
            share_gradients(self.optimizer, self.sleep)
        if self.run.share_moments:
            share_moments(self.optimizer, self.sleep)
        return SlowMomentum(self.sleep, momentum=self.run.slow_momentum) if self.run.slow_momentum else None

    def start_epoch(self) -> None:
        """Start an epoch: reset its counters."""
        if self.sleep is not None:
            self.sleep.start_epoch()
        self.tally, self.seconds, self.cpu_seconds, self.sleep_seconds = Tally(), 0.0, 0.0, 0.0

    def learn(self, inputs: Tensor, labels: Tensor, images: int) -> tuple[float, list[dict[str, Any]]]:
        """One optimizer step on this process's part of a batch of ``images``, then sleep if it is time.

        The step is queued on the device as a whole: nothing waits for it before its loss is read at the end.

        Returns:
            the mean loss of this part, and the SNRs if they were due.
        """
        start, cpu_start = time.perf_counter(), time.process_time()
        torch.manual_seed(self.run.seed * 1_000_003 + self.step)
        inputs, labels = self._receive(inputs), self.place.receive(labels)
        with self.place.autocast():
            scores = self.model(inputs)
        loss = summed_loss(scores, labels)
        self._set_learning_rate()
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss * (self.place.world_size / images)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1
        value = self.tally.add(scores, labels, loss)
        if self.place.any(not isfinite(value)):
            raise DivergedError(f"the loss at step {self.step} is {value}: the training has diverged")
        reports = self._rest()
        self.seconds += time.perf_counter() - start
        self.cpu_seconds += time.process_time() - cpu_start
        return value / max(1, len(labels)), reports

    def _set_learning_rate(self) -> None:
        """Set the rate of this step in all parameter groups."""
        epoch_rate = self.run.learning_rate_in(self.step // self.steps_per_epoch)
        warmth = min(1.0, (self.step + 1) / self.run.warm_up) if self.run.warm_up else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * warmth * (epoch_rate / self.run.learning_rate)

    @property
    def snr_interval(self) -> int:
        """Steps from one measurement of the SNRs to the next: where the network sleeps, at a sleep."""
        if self.run.snr_every:
            return self.run.snr_every
        half, sleep_every = max(1, self.steps_per_epoch // 2), self.run.sleep_every or 1
        return ceil(half / sleep_every) * sleep_every

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and facts for a checkpoint; all processes must ask for it."""
        tensors = {MODEL + name: value for name, value in compact_state(self.model).items()}
        for name, parameter in unwrapped(self.model).named_parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"{OPTIMIZER}{name}/{key}"] = full_tensor(value)
        for part, slow in (self.slow_momentum.state_dict() if self.slow_momentum else {}).items():
            tensors |= {f"{SLOW_MOMENTUM}{part}/{name}": full_tensor(value) for name, value in slow.items()}
        facts = {
            "step": self.step,
            "tally": self.tally.over_all(self.place).as_dict(),
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "sleep_seconds": self.sleep_seconds,
            "sleep": None if self.sleep is None else self.sleep.state_dict(),
            **({"scaler": self.scaler.state_dict()} if self.scaler.is_enabled() else {}),
        }
        return tensors, facts

    def load(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        load_compact_state(self.model, _below(MODEL, tensors))
        for name, parameter in unwrapped(self.model).named_parameters():
            moments = _below(f"{OPTIMIZER}{name}/", tensors)
            self.optimizer.state[parameter] = {key: _placed_like(parameter, value) for key, value in moments.items()}
        self.step = facts["step"]
        self.seconds, self.cpu_seconds, self.sleep_seconds = (facts[name] for name in _SECONDS)
        self.tally = Tally(**facts["tally"]) if self.place.first else Tally()
        if self.sleep is not None:
            self.sleep.load_state_dict(facts["sleep"])
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(facts["scaler"])
        if self.slow_momentum is not None:
            parts = {part: _below(f"{SLOW_MOMENTUM}{part}/", tensors) for part in self.slow_momentum.state_dict()}
            self.slow_momentum.load_state_dict(parts)

    def _rest(self) -> list[dict[str, Any]]:
        """Sleep if it is time; report SNRs, before and after a sleep, and angles of feedback weights, if due."""
        # Sleeps that are counted from each epoch's start begin with its first step.
        counted = (self.step - 1) % self.steps_per_epoch if self.run.restart_each_epoch else self.step
        measured = counted % self.snr_interval == 0
        due = bool(self.layers) and measured
        record = None
        if self.sleep is not None:
            self.sleep.statistics = due
            record = self.sleep.step()
        if record is not None:
            self.sleep_seconds += record.seconds
        if self.sleep is None and self.step % _MIRROR_EVERY == 0 and mirrors(self.model):
            mirror_(self.model)
        return (self._snrs(record) if due else []) + (self._angles() if measured else [])

    def _snrs(self, record: SleepRecord | None) -> list[dict[str, Any]]:
        if record is None:
            return [self._snr("awake", layer_snrs(self.layers) if self.sleep is None else self.sleep.snrs())]
        return [
            self._snr(when, {name: snrs[key] for name, snrs in record.layers.items()})
            for when, key in (("awake", "before"), ("asleep", "after"))
        ]

    def _angles(self) -> list[dict[str, Any]]:
        """Report the angles between forward and feedback weights, where there are such."""
        angles = alignment(self.model)
        return [{"kind": "alignment", "step": self.step, "layers": angles}] if angles else []

    def _snr(self, when: str, layers: dict[str, float]) -> dict[str, Any]:
        if broken := [name for name, snr in layers.items() if isnan(snr)]:
            raise DivergedError(f"the SNR of {broken[0]} after step {self.step} is nan: the training has diverged")
        return {"kind": "snr", "step": self.step, "when": when, "layers": layers}

    def _receive(self, inputs: Tensor) -> Tensor:
        inputs = self.place.receive(inputs)
        if self.run.connectivity == "convolutional":
            return inputs.contiguous(memory_format=torch.channels_last)
        return inputs


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _placed_like(parameter: nn.Parameter, value: Tensor) -> Tensor:
    """A moment where its parameter is, in the same memory format; the count of steps as it is."""
    if value.shape != parameter.shape:
        return value.to(parameter.device)
    return torch.empty_like(parameter).copy_(sharded_like(value, parameter))
