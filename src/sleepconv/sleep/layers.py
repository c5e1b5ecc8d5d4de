"""The layers that sleep, who shares with whom in them, and how well they share."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from torch import Tensor, nn

from sleepconv.functional.grids import lateral_grids, leave_border_alone
from sleepconv.functional.measures import weight_snr
from sleepconv.functional.sharing import neurons_per_grid
from sleepconv.nn.conversion import select
from sleepconv.nn.modules import PerPatchLinear
from sleepconv.sleep.distributed import full_tensor

Border = Literal["all", "interior"]

_GEOMETRY = ("output_size", "kernel_size", "stride", "dilation")


class _HasWeightAndGrids(type(Protocol)):  # type: ignore[misc]
    """Metaclass that looks attributes up by ``hasattr``: since Python 3.12 protocols do not see parameters."""

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
    """Return the model's layers without weight sharing, by name; the model itself, if it is one, is called "".

    Args:
        model: a model or a layer.
        include: names of modules; only these, and layers inside them, sleep.
        exclude: names of modules that do not sleep, nor do layers inside them.

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
    """Return the model inside ``DistributedDataParallel`` and ``torch.compile``.

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
    """Return who shares with whom in a layer: all neurons of each grid, or only those whose windows see no padding.

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


def driven_grids(layer: Any, border: Border = "all", period: int | None = None) -> Tensor:
    """Return who shares with whom when patterns of this period drive a layer: by its assigned grids, if it has any.

    >>> import torch
    >>> from sleepconv.nn import LocallyConnected1d
    >>> layer = LocallyConnected1d(1, 1, 3, input_size=6)
    >>> driven_grids(layer, period=2).tolist()
    [0, 1, 0, 1]
    >>> layer.grids = torch.tensor([0, 0, 1, 1])
    >>> driven_grids(layer, period=2).tolist()
    [0, 0, 1, 1]
    """
    return sharing_grids(layer, border, None if has_assigned_grids(layer) else period)


def has_assigned_grids(layer: Any) -> bool:
    """Return whether a layer was given grids in place of those of ``lateral_grids``.

    >>> has_assigned_grids(nn.Linear(1, 1))
    False
    """
    return getattr(layer, "assigned_grids", None) is not None


def layer_snrs(layers: Mapping[str, Any], grids: Mapping[str, Tensor] | None = None) -> dict[str, float]:
    """Return the ``weight_snr`` (Eq. 6) of each layer within these grids, by default within its own.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> list(layer_snrs({"conv1": LocallyConnected1d(1, 1, 3, input_size=9)}))
    ['conv1']
    """
    return {
        name: float(weight_snr(full_tensor(layer.weight), layer.grids if grids is None else grids[name]))
        for name, layer in layers.items()
    }


def check_something_to_share(layers: Mapping[str, Any], grids: Mapping[str, Tensor]) -> None:
    """Raise a ValueError that names a layer whose grids all have one neuron."""
    for name, layer in layers.items():
        if int(neurons_per_grid(layer.weight, grids[name]).max()) < 2:
            own = int(neurons_per_grid(layer.weight, layer.grids).max()) < 2
            grid = "grid" if own else "grid, as the rule's border and period choose them,"
            raise ValueError(
                f"layer {name!r}: every {grid} has one neuron, so there is nothing to share; exclude it from sleep"
            )


def check_border(border: str) -> None:
    """Raise a ValueError unless this is a ``Border``."""
    if border not in get_args(Border):
        raise ValueError(f"`border` must be one of {', '.join(get_args(Border))}, got {border!r}")


def _grids_of_period(layer: Any, period: int) -> Tensor:
    if isinstance(layer, PerPatchLinear):
        return layer.grids
    if not all(hasattr(layer, name) for name in _GEOMETRY):
        raise ValueError(
            f"period={period} needs a layer with {', '.join(_GEOMETRY)}; for a bare tensor pass the grids of that "
            f"period, lateral_grids(..., period={period})"
        )
    return lateral_grids(layer.output_size, layer.kernel_size, layer.stride, layer.dilation, period=period)
