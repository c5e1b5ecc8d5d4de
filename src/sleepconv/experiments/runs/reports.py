"""What the lines of ``metrics.jsonl`` hold."""

import sys
from statistics import median
from typing import Any

from sleepconv.curves import negative_log

NUMBERS = {
    "epoch": ("epoch", "step", "top1", "loss", "seconds", "sleep_seconds"),
    "evaluation": ("epoch", "step", "top1", "seconds"),
    "snr": ("step",),
    "alignment": ("step",),
}
"""The numbers that tables, figures and reports take from each kind of line."""


def check_report(report: dict[str, Any]) -> None:
    """Check that a line has what tables and figures read from lines of its kind.

    >>> check_report({"kind": "snr", "step": 3, "when": "awake", "layers": {"conv1": "inf"}})
    >>> check_report({"kind": "snr", "step": 3, "when": "awake", "layers": {"conv1": None}})
    Traceback (most recent call last):
    ValueError: it has no SNRs of layers
    """
    numbers = NUMBERS.get(report["kind"], ())
    if missing := [name for name in numbers if not is_number(report.get(name))]:
        raise ValueError(f"it has no number for {', '.join(missing)}")
    if report["kind"] == "snr":
        layers = report.get("layers")
        if not isinstance(layers, dict) or not all(is_number(snr) or snr == "inf" for snr in layers.values()):
            raise ValueError("it has no SNRs of layers")
        if report.get("when") not in ("awake", "asleep"):
            raise ValueError("it does not say whether the network was awake or asleep")
    if report["kind"] == "alignment":
        layers = report.get("layers")
        if not isinstance(layers, dict) or not all(map(is_number, layers.values())):
            raise ValueError("it has no angles of layers")


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number, not too large for a float.

    >>> is_number(3), is_number(float("nan")), is_number(10**400), is_number("3")
    (True, False, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def log_noise(layers: dict[str, float | str]) -> float:
    """Return the median over layers of −log SNR, from a report.

    >>> log_noise({"a": 1.0, "b": "inf", "c": 0.5}) + 0.0
    0.0
    """
    return median(negative_log(float(snr)) for snr in layers.values())
