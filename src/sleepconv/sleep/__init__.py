"""Sleep: which layers share, when, and by which rule."""

from sleepconv.sleep.hebbian import DivergenceError, LayerReport
from sleepconv.sleep.layers import SleepingLayer, SleepRecord, sleeping_layers
from sleepconv.sleep.rules import Circuit, Hebbian, Instant, Rule
from sleepconv.sleep.sleep import Sleep

__all__ = [
    "Circuit",
    "DivergenceError",
    "Hebbian",
    "Instant",
    "LayerReport",
    "Rule",
    "Sleep",
    "SleepRecord",
    "SleepingLayer",
    "sleeping_layers",
]
