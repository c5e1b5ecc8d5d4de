"""``Sleep``, which lets a model sleep in anyone's training loop; ``Sleep.sleep`` is what happens at a sleep."""

import gc
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from sleepconv.files import json_number
from sleepconv.nn.conversion import module_names
from sleepconv.sleep.distributed import agree_, gathered, reshard_
from sleepconv.sleep.layers import check_something_to_share, layer_snrs, sleeping_layers, unwrapped
from sleepconv.sleep.rules import Instant, Rule

_STATE = ("steps", "count", "last_sleep")
Every = int | Callable[[int], bool] | Literal["never"]


@dataclass(frozen=True)
class SleepRecord:
    """One sleep: after which optimizer step, and the ``weight_snr`` (Eq. 6) of each layer before and after.

    Attributes:
        step: optimizer steps taken before this sleep.
        layers: for each layer its SNR ``{"before": ..., "after": ...}``; empty without ``statistics=True``.
        seconds: how long the layers took to share, without the statistics.

    >>> SleepRecord(10, {"conv1": {"before": 0.25, "after": float("inf")}}).as_dict()
    {'step': 10, 'layers': {'conv1': {'before': 0.25, 'after': 'inf'}}}
    """

    step: int
    layers: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return step and SNRs as JSON can hold them: "inf" where weights agree, or "nan"; ``float`` reads these."""
        layers = {name: {when: json_number(snr) for when, snr in snrs.items()} for name, snrs in self.layers.items()}
        return {"step": self.step, "layers": layers}


class Sleep:
    """Let the locally connected layers of a model share their weights every so many optimizer steps.

    Write ``Sleep(model, every=10).attach(optimizer)`` before a training loop, or call ``step()`` after each optimizer
    step. Call ``sleep_if_awake()`` before an evaluation. Steps are counted over the whole run, except for those that a
    ``GradScaler`` skips (but not with a fused optimizer on a GPU: to know that a step was skipped, the program would
    have to wait for the GPU), and each sleep looks for the layers again. ``sleepconv.optim`` lets a sleeping network
    learn at full speed.

    A sleep changes the weights but not the running averages of BatchNorm, which follow over the next steps. To evaluate
    a network right after a sleep at its best, first estimate the statistics again on training images, for example with
    ``torch.optim.swa_utils.update_bn(loader, model)``.

    On several processes all must sleep at the same steps. Pass the model after ``fully_shard`` (FSDP2), or the DDP
    model (after a rule with random patterns, the first process's weights count).

    A sleep that ends in an error or Ctrl-C does not count: ``last_sleep`` and ``records`` stay, and the next sleep
    shares the rest. What becomes of the weights depends on the rule, see ``sleepconv.sleep.rules``.

    Args:
        model: any model with locally connected layers.
        every: optimizer steps from sleep to sleep, one or more; a function that is called with the number of steps so
            far (with ``restart_each_epoch``, in this epoch) and returns whether to sleep now; or "never", to sleep only
            when ``sleep()`` is called.
        rule: how the layers share: ``Instant()``, or another ``Rule``.
        include: names of modules; only these, and layers inside them, sleep.
        exclude: names of modules that do not sleep, nor do layers inside them; frozen layers sleep unless excluded.
        restart_each_epoch: sleep after the first step that follows ``start_epoch()``, and every so many steps from
            there: the schedule of the paper's published runs.
        statistics: record each layer's SNR before and after each sleep; takes longer than an instant sleep itself. May
            be switched on and off between sleeps.

    Attributes:
        steps: optimizer steps so far.
        last_sleep: the number of steps taken before the last sleep, or None.
        due: for hooks, whether the present sleep came when it was due, and not by ``sleep()``.
        records: with ``statistics``, one ``SleepRecord`` per sleep; not part of ``state_dict()``.

    >>> import sleepconv
    >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
    >>> model = sleepconv.to_locally_connected(model, torch.randn(1, 1, 9, 9))
    >>> optimizer = torch.optim.AdamW(model.parameters())
    >>> sleep = Sleep(model, every=2, statistics=True)
    >>> handle = sleep.attach(optimizer)
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     model(torch.randn(5, 1, 9, 9)).sum().backward()
    ...     optimizer.step()
    >>> sleep.steps, sleep.last_sleep, sleep.steps_since_sleep
    (3, 2, 1)
    >>> sleep.records[0].layers["0"]["after"]
    inf
    >>> Sleep(model, every=lambda step: step in (1, 10, 100, 1000)).step().step
    1
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: Every,
        rule: Rule = Instant(),  # noqa: B008 (it is frozen)
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        restart_each_epoch: bool = False,
        statistics: bool = False,
    ) -> None:
        if not (every == "never" or callable(every) or (_is_count(every) and every)):
            raise ValueError(
                "`every` must be an int, 1 or more (optimizer steps from sleep to sleep), a function of the number of "
                f'steps, or "never", got {every!r}'
            )
        if isinstance(rule, type) or not hasattr(rule, "sleep_"):
            raise TypeError(f"`rule` must be a rule such as Instant() or Hebbian(), got {rule!r}")
        self.model, self.every, self.rule = model, every, rule
        self.include = None if include is None else module_names("include", include)
        self.exclude = module_names("exclude", exclude)
        self.restart_each_epoch, self.statistics = restart_each_epoch, statistics
        self.steps = 0
        self.last_sleep: int | None = None
        self.records: list[SleepRecord] = []
        self._count, self.due = 0, False
        self._hooks: dict[int, Callable[[dict[str, nn.Module]], None]] = OrderedDict()
        self._optimizer: Optimizer | None = None
        self._step_handle: RemovableHandle | None = None
        layers = self.layers
        check_something_to_share(layers, self._grids(layers))

    def __repr__(self) -> str:
        schedule = getattr(self.every, "__name__", self.every) if callable(self.every) else repr(self.every)
        try:
            names = [name or "the model itself" for name in self.layers]
        except ValueError:  # the model was changed since
            names = []
        shown = ", ".join(names if len(names) <= 4 else [*names[:2], "...", names[-1]])
        return (
            f"Sleep(every={schedule}, rule={self.rule!r}, layers={len(names)} ({shown}), steps={self.steps}, "
            f"last_sleep={self.last_sleep})"
        )

    @property
    def layers(self) -> dict[str, nn.Module]:
        """The layers that sleep, by their names in the model inside DDP and ``torch.compile``."""
        return sleeping_layers(unwrapped(self.model), include=self.include, exclude=self.exclude)

    @property
    def steps_since_sleep(self) -> int:
        """Optimizer steps since the last sleep, or since the start."""
        return self.steps - (self.last_sleep or 0)

    @property
    def attached(self) -> bool:
        """Whether an optimizer counts the steps."""
        hooks = None if self._step_handle is None else self._step_handle.hooks_dict_ref()
        return hooks is not None and self._step_handle.id in hooks  # type: ignore[union-attr]

    def attach(self, optimizer: Optimizer) -> RemovableHandle:
        """Count this optimizer's steps, and sleep when due.

        Like PyTorch's hooks, this ``Sleep`` is kept alive by the optimizer, even if you keep no reference to it, until
        ``detach()`` or ``remove()`` of the returned handle. A layer cannot sleep by two attached ``Sleep``s, not even
        of two optimizers.
        """
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"attach() takes a torch.optim optimizer, got {type(optimizer).__name__}; or call step()")
        if self.attached:
            raise RuntimeError(
                "this Sleep is already attached to an optimizer; detach() it first, or build one Sleep per optimizer, "
                "each with include= its layers"
            )
        layers = self.layers
        check_held(layers, optimizer)
        _check_not_asleep_already(layers)
        self._optimizer = optimizer
        self._step_handle = optimizer.register_step_post_hook(self._after_step)
        _ATTACHED.add(self)
        return self._step_handle

    def detach(self) -> None:
        """Stop counting the optimizer's steps."""
        if self._step_handle is not None:
            self._step_handle.remove()
        self._optimizer, self._step_handle = None, None

    def step(self) -> SleepRecord | None:
        """Count one optimizer step; if it is time, sleep and return the record."""
        if self.attached:
            raise RuntimeError("the attached optimizer already counts the steps; use either step() or attach()")
        return self._count_step()

    def start_epoch(self) -> None:
        """With ``restart_each_epoch``, sleep after the next step and count from there; otherwise do nothing."""
        if self.restart_each_epoch:
            self._count = 0

    def sleep_if_awake(self) -> SleepRecord | None:
        """Sleep if any step was taken since the last sleep; call it before an evaluation, on every process."""
        return self.sleep() if self.steps_since_sleep else None

    def sleep(self) -> SleepRecord:
        """Sleep now; the steps are counted as before.

        Find the layers, let the rule share their weights (gathered first, if they are sharded and the rule needs them
        whole), call the hooks, and with ``statistics`` measure the SNRs before and after.
        """
        reshard_(self.model)
        layers = self.layers
        grids = self._grids(layers)
        check_something_to_share(layers, grids)
        if self.attached and self._optimizer is not None:
            check_held(layers, self._optimizer)
        with torch.inference_mode(False), torch.no_grad():
            before = layer_snrs(layers, grids) if self.statistics else {}
            start = time.perf_counter()
            self._share(layers)
            for hook in list(self._hooks.values()):
                hook(layers)
            seconds = time.perf_counter() - start
            after = layer_snrs(layers, grids) if self.statistics else {}
        snrs = {name: {"before": before[name], "after": after[name]} for name in before}
        record = SleepRecord(self.steps, snrs, seconds)
        self.last_sleep = self.steps
        if self.statistics:
            self.records.append(record)
        return record

    @property
    def grids(self) -> dict[str, Tensor]:
        """Who shares with whom in each sleeping layer: the rule's grids, or the layer's own."""
        return self._grids(self.layers)

    def register_sleep_hook(self, hook: Callable[[dict[str, nn.Module]], None]) -> RemovableHandle:
        """Call ``hook(layers)``, without gradients, right after the layers have shared their weights in each sleep."""
        handle = RemovableHandle(self._hooks)
        self._hooks[handle.id] = hook
        return handle

    def snrs(self) -> dict[str, float]:
        """Return the ``weight_snr`` (Eq. 6) of each sleeping layer among the neurons that share by the rule."""
        layers = self.layers
        return layer_snrs(layers, self._grids(layers))

    def state_dict(self) -> dict[str, int | None]:
        """Return the counts, as plain numbers."""
        return {"steps": self.steps, "count": self._count, "last_sleep": self.last_sleep}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue counting from where ``state_dict()`` was taken."""
        if not isinstance(state, Mapping) or set(state) != set(_STATE):
            given = ", ".join(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise ValueError(f"the state of a Sleep must have {', '.join(_STATE)}, got {given or 'nothing'}")
        steps, count, last_sleep = (state[key] for key in _STATE)
        numbers = [steps, count] if last_sleep is None else [steps, count, last_sleep]
        if not all(_is_count(number) for number in numbers) or max(numbers) > steps:
            raise ValueError(
                "the state of a Sleep must be ints: steps, and count and last_sleep (or None) from 0 to steps, "
                f"got {steps=}, {count=}, {last_sleep=}"
            )
        self.steps, self._count, self.last_sleep = steps, count, last_sleep

    def _grids(self, layers: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the rule's grids, or each layer's own."""
        of_rule = getattr(self.rule, "grids", None)
        return of_rule(layers) if callable(of_rule) else {name: layer.grids for name, layer in layers.items()}

    def _share(self, layers: dict[str, nn.Module]) -> None:
        model = unwrapped(self.model)
        if getattr(self.rule, "works_on_shards", False):
            self.rule.sleep_(layers, model)
        else:
            with gathered(layers, model):
                self.rule.sleep_(layers, model)
            agree_(layers, self.model)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        # A fused optimizer is called, and does nothing, where a GradScaler found infinite gradients.
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is None or found_inf.device.type != "cpu" or not found_inf:
            self._count_step()

    def _count_step(self) -> SleepRecord | None:
        self.steps += 1
        self._count += 1
        if not self._is_due():
            return None
        self.due = True
        try:
            return self.sleep()
        finally:
            self.due = False

    def _is_due(self) -> bool:
        """Return whether to sleep after the step that was just counted."""
        if self.every == "never":
            return False
        if callable(self.every):
            return bool(self.every(self._count))
        return (self._count - 1 if self.restart_each_epoch else self._count) % self.every == 0


_ATTACHED: WeakSet[Sleep] = WeakSet()


def check_held(layers: Mapping[str, Any], optimizer: Optimizer) -> None:
    """Raise a ValueError unless the optimizer holds the weights of these layers."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for name, layer in layers.items():
        if layer.weight.requires_grad and id(layer.weight) not in held:
            raise ValueError(
                f"the optimizer does not hold the weight of the sleeping layer {name!r}: it was built before the layer "
                "(by an in-place conversion or fully_shard), or trains other layers. Build the optimizer afterwards, "
                f"or exclude={[name]} from sleep"
            )


def _check_not_asleep_already(layers: Mapping[str, Any]) -> None:
    if _asleep_already(layers):
        gc.collect()  # a Sleep and its optimizer refer to each other, so dropped ones may still be there
    if both := _asleep_already(layers):
        raise RuntimeError(
            f"another attached Sleep already lets {', '.join(map(repr, both))} sleep; call its detach(), or remove() "
            "of the handle that its attach() returned, or include= other layers. If you kept neither, drop its "
            "optimizer and build another"
        )


def _asleep_already(layers: Mapping[str, Any]) -> list[str]:
    """Return the names of those layers that an attached Sleep lets sleep."""
    theirs: set[int] = set()
    for other in list(_ATTACHED):
        if other.attached:
            with suppress(ValueError):  # its model no longer has such layers
                theirs.update(map(id, other.layers.values()))
    return [name for name, layer in layers.items() if id(layer) in theirs]


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
