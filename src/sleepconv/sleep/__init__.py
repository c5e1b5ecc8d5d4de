"""Sleep: which layers share, when, and by which rule."""

from sleepconv.sleep.layers import SleepingLayer, sleeping_layers
from sleepconv.sleep.records import SleepRecord
from sleepconv.sleep.rules import Instant, Rule
from sleepconv.sleep.sleep import Sleep

__all__ = ["Instant", "Rule", "Sleep", "SleepRecord", "SleepingLayer", "sleeping_layers"]
