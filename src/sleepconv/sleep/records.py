"""What a sleep did to the weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from torch import Tensor

from sleepconv.functional.measures import weight_snr
from sleepconv.sleep.distributed import whole_weight


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
