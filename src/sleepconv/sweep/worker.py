"""One worker of a sweep, a process that trains one run and ends: ``python -m sleepconv.sweep.worker ORDER``."""

import json
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass

from sleepconv.training import Run, TrainingInterrupted, train


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


if __name__ == "__main__":
    sys.exit(main())
