"""Training: runs, their networks, the loop, and the folders that they leave."""

from sleepconv.training.checkpoints import CorruptCheckpointError
from sleepconv.training.compact import compact_state, load_compact_state
from sleepconv.training.evaluation import Tally, evaluate, reestimated_statistics
from sleepconv.training.folder import RunFolder, find_runs, run_path
from sleepconv.training.interrupts import TrainingInterrupted
from sleepconv.training.learner import DivergedError
from sleepconv.training.loop import train
from sleepconv.training.memory import keep_freed_memory
from sleepconv.training.network import NETWORKS, build_network
from sleepconv.training.run import Run

__all__ = [
    "NETWORKS",
    "CorruptCheckpointError",
    "DivergedError",
    "Run",
    "RunFolder",
    "Tally",
    "TrainingInterrupted",
    "build_network",
    "compact_state",
    "evaluate",
    "find_runs",
    "keep_freed_memory",
    "load_compact_state",
    "reestimated_statistics",
    "run_path",
    "train",
]
