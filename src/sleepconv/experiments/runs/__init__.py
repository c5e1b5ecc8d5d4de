"""Runs and what they leave: what was asked for, where it is kept, what was reported, and on which machine.

Nothing here needs PyTorch, which takes seconds to import.
"""

from sleepconv.experiments.runs.folder import RunFolder, find_runs, run_path
from sleepconv.experiments.runs.registry import register_network, register_rule
from sleepconv.experiments.runs.run import Run

__all__ = ["Run", "RunFolder", "find_runs", "register_network", "register_rule", "run_path"]
