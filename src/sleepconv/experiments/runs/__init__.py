"""Runs and their records: what was asked for, where it is kept, and the tables made from it.

Nothing here needs PyTorch, which takes seconds to import.
"""

from sleepconv.experiments.runs.folder import RunFolder, find_runs, run_path
from sleepconv.experiments.runs.run import Run

__all__ = ["Run", "RunFolder", "find_runs", "run_path"]
