"""What a sleep did to the weights."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from torch import Tensor, nn

from sleepconv.functional.grids import lateral_grids, leave_border_alone
from sleepconv.functional.measures import weight_snr
from sleepconv.nn.conversion import select
from sleepconv.nn.modules import PerPatchLinear
from sleepconv.sleep.distributed import whole_weight

Border = Literal["all", "interior"]
GEOMETRY = ("output_size", "kernel_size", "stride", "dilation")


class _HasWeightAndGrids(type(Protocol)):  # type: ignore[misc]
    """Look attributes up as everyone does: ``runtime_checkable`` does not see parameters from Python 3.12 on."""

    def __instancecheck__(cls, instance: object) -> bool:
        return hasattr(instance, "grids") and hasattr(instance, "weight")


@runtime_checkable
class SleepingLayer(Protocol, metaclass=_HasWeightAndGrids):
    """A layer whose neurons share in their sleep: one filter per position, and the grid of each position.

    >>> from sleepconv.nn import LocallyConnected2d, PerPatchLinear
    >>> isinstance(LocallyConnected2d(1, 4, 3, input_size=9), SleepingLayer)
    True
    >>> isinstance(PerPatchLinear(8, 8, num_patches=4), SleepingLayer), isinstance(nn.Linear(8, 8), SleepingLayer)
    (True, False)
    """

    weight: nn.Parameter

    @property
    def grids(self) -> Tensor:
        """The grid of each position."""
        ...


def sleeping_layers(
    model: nn.Module, *, include: Iterable[str] | None = None, exclude: Iterable[str] = ()
) -> dict[str, nn.Module]:
    """The model's layers without weight sharing, by name; the model itself, if it is one, is called "".

    Args:
        model: a model or a layer.
        include: names of modules; only these, or layers inside of them, sleep.
        exclude: names of modules that do not sleep, nor what is inside of them.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> first, second = LocallyConnected2d(1, 4, 3, input_size=9), LocallyConnected2d(4, 4, 3, input_size=7)
    >>> model = nn.Sequential(first, nn.ReLU(), second)
    >>> list(sleeping_layers(model)), list(sleeping_layers(model, exclude=["2"]))
    (['0', '2'], ['0'])
    """
    found: dict[str, Any] = {n: m for n, m in model.named_modules() if isinstance(m, SleepingLayer)}
    if not found:
        raise ValueError("model has no locally connected layer; call to_locally_connected(model, sample) first")
    chosen = select(model, found, include=include, exclude=exclude)
    if not chosen:
        raise ValueError(f"include and exclude leave no layer to sleep; the model has {', '.join(found)}")
    return chosen


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside of ``DistributedDataParallel`` and ``torch.compile``.

    >>> model = nn.Linear(1, 1)
    >>> unwrapped(model) is model
    True
    """
    inside: Any = model
    while True:
        if isinstance(inside, nn.parallel.DistributedDataParallel):
            inside = inside.module
        elif hasattr(inside, "_orig_mod"):
            inside = inside._orig_mod
        else:
            return inside


def sharing_grids(layer: Any, border: Border = "all", period: int | None = None) -> Tensor:
    """Who shares with whom in this layer: all neurons of each grid, or only those whose windows see no padding.

    Patterns of another ``period`` than the layer's own make other grids; token layers have one grid and no border.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> layer = LocallyConnected1d(1, 1, 2, input_size=5, padding=1)
    >>> sharing_grids(layer, "all").tolist(), sharing_grids(layer, "interior").tolist()
    ([0, 1, 0, 1, 0, 1], [2, 1, 0, 1, 0, 3])
    """
    grids = layer.grids if period is None else _grids_of_period(layer, period)
    if border == "all" or not hasattr(layer, "interior"):
        return grids
    return leave_border_alone(grids, layer.interior)


def _grids_of_period(layer: Any, period: int) -> Tensor:
    if isinstance(layer, PerPatchLinear):
        return layer.grids
    if not all(hasattr(layer, name) for name in GEOMETRY):
        raise ValueError(
            f"period={period} is for layers that know their {', '.join(GEOMETRY)}; for a bare tensor give the grids of "
            f"that period, lateral_grids(..., period={period})"
        )
    return lateral_grids(layer.output_size, layer.kernel_size, layer.stride, layer.dilation, period=period)


def check_border(border: str) -> None:
    """Raise a ValueError unless there is such a choice."""
    if border not in get_args(Border):
        raise ValueError(f"border is one of {', '.join(get_args(Border))}, not {border!r}")


@dataclass(frozen=True)
class SleepRecord:
    """One sleep: after which optimizer step, and the ``weight_snr`` (Eq. 6) of each layer before and after.

    Attributes:
        step: optimizer steps taken before this sleep.
        layers: for each layer its SNR ``{"before": ..., "after": ...}``; empty without ``statistics=True``.

    >>> SleepRecord(10, {"conv1": {"before": 0.25, "after": float("inf")}}).as_dict()
    {'step': 10, 'layers': {'conv1': {'before': 0.25, 'after': 'inf'}}}
    """

    step: int
    layers: dict[str, dict[str, float]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON can hold it: an infinite SNR, of weights that agree, becomes "inf" (no number: "nan")."""
        layers = {
            name: {when: snr if isfinite(snr) else str(snr) for when, snr in snrs.items()}
            for name, snrs in self.layers.items()
        }
        return {"step": self.step, "layers": layers}


def layer_snrs(layers: Mapping[str, Any], grids: Mapping[str, Tensor] | None = None) -> dict[str, float]:
    """The ``weight_snr`` of each layer within these grids, by default its own.

    float(text) reads back what ``SleepRecord.as_dict`` writes.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> list(layer_snrs({"conv1": LocallyConnected1d(1, 1, 3, input_size=9)}))
    ['conv1']
    """
    return {
        name: float(weight_snr(whole_weight(layer), layer.grids if grids is None else grids[name]))
        for name, layer in layers.items()
    }
