"""Training: from a run to its network, the loop, checkpoints, several processes."""

from sleepconv.experiments.interrupts import TrainingInterrupted
from sleepconv.experiments.runs.registry import NETWORKS
from sleepconv.experiments.training.checkpoints import CorruptCheckpointError
from sleepconv.experiments.training.evaluation import Tally, evaluate, reestimated_statistics
from sleepconv.experiments.training.learner import DivergedError
from sleepconv.experiments.training.loop import train
from sleepconv.experiments.training.network import build_network

__all__ = [
    "NETWORKS",
    "CorruptCheckpointError",
    "DivergedError",
    "Tally",
    "TrainingInterrupted",
    "build_network",
    "evaluate",
    "reestimated_statistics",
    "train",
]
