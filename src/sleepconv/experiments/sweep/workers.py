"""What a sweep asks of the place where its workers live, and what it tells them."""

import json
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from sleepconv.experiments.runs import Run
from sleepconv.experiments.sweep.jobs import Job
from sleepconv.experiments.training import TrainingInterrupted, train


@dataclass(frozen=True)
class Order:
    """What a worker is told."""

    run: str
    folder: str
    threads: int
    data_dir: str | None = None
    complete: bool = True

    def as_json(self) -> str:
        """As the worker reads it."""
        return json.dumps(asdict(self))


def carry_out(order: Order) -> None:
    """Train a run to its end, from wherever it was left."""
    import torch

    torch.set_num_threads(order.threads)
    train(Run.from_json(order.run), order.folder, data_dir=order.data_dir, complete=order.complete, quiet=True)


def main() -> int:
    """Carry out the order on the command line; stop cleanly if the sweep ends before."""
    order = Order(**json.loads(sys.argv[1]))
    threading.Thread(target=_stop_with_the_sweep, daemon=True).start()
    try:
        carry_out(order)
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except TrainingInterrupted as stopped:
        return stopped.exit_code
    return 0


def _stop_with_the_sweep() -> None:
    """The input is a pipe that the sweep holds open: its end is the sweep's."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


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

    >>> from sleepconv.experiments.paper import recipe
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


if __name__ == "__main__":
    sys.exit(main())
