"""What a sweep asks of the place where its workers live, and what it tells them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sleepconv.sweep.jobs import Job
from sleepconv.sweep.worker import Order


class WorkerDiedError(RuntimeError):
    """A worker ended without saying why; its run goes on from the last checkpoint when it is started again."""


class JobFailedError(RuntimeError):
    """A run cannot be trained; starting it again would not help."""


class Workers(Protocol):
    """What a sweep asks of the place where it runs."""

    count: int

    def train(self, job: Job) -> None:
        """Train a run to its end; `WorkerDiedError` or `JobFailedError` if it does not get there."""

    def stop(self) -> None:
        """Let the running workers stop cleanly."""


@dataclass(frozen=True)
class Orders:
    """What all workers of a sweep are told alike.

    >>> from sleepconv.recipes import recipe
    >>> Orders(threads=2).of(Job(recipe("cifar10_local"), Path("runs/mine"))).threads
    2
    """

    threads: int
    data_dir: str | None = None
    complete: bool = True

    def of(self, job: Job) -> Order:
        """What the worker of one job is told."""
        folder = str(job.folder)
        return Order(job.run.as_json(), folder, self.threads, data_dir=self.data_dir, complete=self.complete)


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def absolute(path: str | os.PathLike[str] | None) -> str | None:
    """A path that means the same in every process; None stays None."""
    return None if path is None else str(Path(path).expanduser().resolve())
