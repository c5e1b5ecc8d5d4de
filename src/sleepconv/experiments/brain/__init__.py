"""The networks of the paper beside recordings of the ventral stream: candidates, scores and their table."""

from sleepconv.experiments.brain.candidates import Preparation, preparation_for

__all__ = ["Preparation", "preparation_for"]
