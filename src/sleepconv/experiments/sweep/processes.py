"""Workers on this machine, each a process of its own, so that one can die without harm to the others."""

import os
import signal
import subprocess
import sys
import threading

from sleepconv.experiments.sweep.jobs import Job
from sleepconv.experiments.sweep.workers import JobFailedError, Order, Orders, WorkerDiedError

# A shell's way to say that a signal ended a program, which may have stopped cleanly before.
SIGNALLED = 128


class Processes:
    """So many workers at a time.

    >>> Processes(2, Orders(threads=1)).count
    2
    """

    def __init__(self, count: int, orders: Orders) -> None:
        self.count, self.orders = count, orders
        self.running: set[subprocess.Popen[str]] = set()
        self.stopping = False
        self._lock = threading.Lock()

    def train(self, job: Job) -> None:
        """Train a run to its end in a new process."""
        process = self._start(self.orders.of(job))
        # Its input stays open as long as the sweep lives, which is how the worker knows.
        with process:
            said = process.stderr.read().strip() if process.stderr else ""
            code = process.wait()
        self.running.discard(process)
        if code == 0:
            return
        if self.stopping:
            raise JobFailedError("stopped; the same command goes on from there")
        if code < 0 or code > SIGNALLED:
            number = -code if code < 0 else code - SIGNALLED
            named = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            raise WorkerDiedError(f"the worker died of {named}")
        raise JobFailedError(said.splitlines()[-1] if said else f"the worker ended with exit code {code}")

    def stop(self) -> None:
        """Ask all workers to stop at their next step; no other is started after this."""
        with self._lock:
            self.stopping = True
            for process in self.running:
                process.terminate()

    def _start(self, order: Order) -> "subprocess.Popen[str]":
        threads = {"OMP_NUM_THREADS": str(order.threads), "MKL_NUM_THREADS": str(order.threads)}
        with self._lock:
            if self.stopping:
                raise JobFailedError("the sweep was stopped before it began")
            process = subprocess.Popen(
                [sys.executable, "-m", "sleepconv.experiments.sweep.workers", order.as_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | threads,
                # Ctrl-C is for the sweep, which then asks its workers to stop.
                start_new_session=True,
            )
            self.running.add(process)
            return process
