"""Sleep: which layers share, when, and by which rule."""

from sleepconv.sleep.layers import SleepingLayer, sleeping_layers
from sleepconv.sleep.rules import Instant, Rule

__all__ = ["Instant", "Rule", "SleepingLayer", "sleeping_layers"]
