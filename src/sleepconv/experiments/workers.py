"""Workers, each training one run at a time: processes on this machine, tasks on a Ray cluster, jobs on SLURM."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sleepconv.experiments.runs import Run, run_path
from sleepconv.experiments.runs.machine import available_cores
from sleepconv.experiments.runs.registry import EXTENSIONS, extensions_for_workers, load_extensions

_A_DAY = 24 * 60  # minutes
_STOPPED = "the sweep was stopped"


class WorkerDiedError(RuntimeError):
    """A worker ended without an error message; started again, it resumes its run from the last checkpoint."""


class Workers(ABC):
    """A place where runs are trained, ``count`` at a time, into folders below ``into``."""

    def __init__(self, into: Path, count: int) -> None:
        self.into, self.count = into, count
        self.running: list[Any] = []
        self._stopped = False
        self._lock = threading.Lock()

    def train(self, run: Run) -> str | None:
        """Train a run to its end and return None, or why it failed; raise a `WorkerDiedError` if the worker died."""
        with self._lock:
            if self._stopped:
                return _STOPPED
            self.running.append(worker := self._start(run))
        try:
            return self._wait(worker)
        except WorkerDiedError:
            if not self._stopped:
                raise
            return _STOPPED
        finally:
            self.running.remove(worker)

    def stop(self) -> None:
        """Ask the running workers to stop at their next step, and start no others."""
        with self._lock:
            self._stopped = True
            for worker in self.running:
                self._cancel(worker)

    @abstractmethod
    def _start(self, run: Run) -> Any: ...

    @abstractmethod
    def _wait(self, worker: Any) -> str | None: ...

    @abstractmethod
    def _cancel(self, worker: Any) -> None: ...


class Processes(Workers):
    """Workers on this machine, each a process, so that one can die without harm to the others.

    A process gets its run as a line of JSON on its standard input, which stays open as long as the sweep lives (see
    `receive_run`), and has OpenMP's number of threads in its environment. If it fails, it ends with an exit code, and
    the last line of its standard error says why.

    >>> Processes(Path("runs"), ["sleepconv", "train", "-"], count=2).count
    2
    """

    def __init__(self, into: Path, command: Sequence[str], *, count: int, threads: int | None = None) -> None:
        super().__init__(into, count)
        self._command, self._threads = list(command), str(threads or max(1, available_cores() // count))

    def _start(self, run: Run) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment(),
            start_new_session=True,  # Ctrl-C is for the sweep, which then asks its workers to stop
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # if it has ended already, its exit code tells
            process.stdin.write(json.dumps(asdict(run)) + "\n")
            process.stdin.flush()
        return process

    def _environment(self) -> dict[str, str]:
        threads = {"OMP_NUM_THREADS": self._threads, "MKL_NUM_THREADS": self._threads}
        extensions = [os.environ.get(EXTENSIONS, ""), *extensions_for_workers()]
        return os.environ | threads | {EXTENSIONS: ",".join(filter(None, extensions))}

    def _wait(self, worker: "subprocess.Popen[str]") -> str | None:
        assert worker.stderr is not None
        with worker:
            lines = worker.stderr.read().strip().splitlines()
            code = worker.wait()
        if code < 0 or code > 128:  # a signal ended it, or made it stop
            number = -code if code < 0 else code - 128
            known = number in set(signal.Signals)
            raise WorkerDiedError(f"killed by {signal.Signals(number).name if known else f'signal {number}'}")
        if code == 0:
            return None
        return lines[-1].removeprefix("sleepconv: ") if lines else f"its worker ended with exit code {code}"

    def _cancel(self, worker: "subprocess.Popen[str]") -> None:
        worker.terminate()


def receive_run() -> Run:
    """Return the run that `Processes` sends to this process, and stop the process cleanly when the sweep ends.

    >>> receive_run()  # doctest: +SKIP
    """
    run = Run.from_json(sys.stdin.readline())
    threading.Thread(target=_stop_with_the_sweep, daemon=True).start()
    return run


def _stop_with_the_sweep() -> None:
    os.read(sys.stdin.fileno(), 1)  # returns when the sweep, however it ended, has closed the pipe
    os.kill(os.getpid(), signal.SIGTERM)


class RayTasks(Workers):
    """Workers on a Ray cluster. All nodes see the same folders and have sleepconv installed.

    >>> sweep(runs, RayTasks(Path("/shared/runs"), threads=4), say=print)  # doctest: +SKIP
    """

    def __init__(
        self,
        into: Path,
        data_dir: str | None = None,
        *,
        threads: int,
        address: str = "auto",
        count: int | None = None,
        complete: bool = True,
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError("Ray is not installed: pip install ray") from error
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except ConnectionError as error:
            raise ConnectionError(f"no Ray cluster answers at {address}: {error}") from error
        resources: dict[str, Any] = ray.cluster_resources()
        gpus = 1 if resources.get("GPU") else 0
        most = max(1, int(resources["GPU"] if gpus else resources.get("CPU", 1) // threads))
        super().__init__(into, min(most, count or most))
        self._ray, self._arguments = ray, (into, data_dir, threads, complete, extensions_for_workers())
        # Ray's own retries are off: the sweep counts and reports them the same way everywhere.
        self._task = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=0, max_calls=1)(_train_remotely)

    def _start(self, run: Run) -> Any:
        return self._task.remote(run, *self._arguments)

    def _wait(self, worker: Any) -> str | None:
        errors = self._ray.exceptions
        try:
            return self._ray.get(worker)
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError) as error:
            raise WorkerDiedError(f"its worker died ({type(error).__name__})") from error
        except (errors.RayTaskError, errors.TaskCancelledError) as error:
            return str(error)

    def _cancel(self, worker: Any) -> None:
        self._ray.cancel(worker)


class SlurmJobs(Workers):
    """Workers that are SLURM jobs, submitted through submitit. All nodes see the same folders.

    A job that is preempted or reaches its time limit is requeued and resumes its run. Scripts and logs are in the
    folder ``slurm`` among the runs. ``cluster="local"`` starts plain processes, to try it without SLURM.

    >>> sweep(runs, SlurmJobs(Path("/shared/runs"), count=8, options={"time": 600}), say=print)  # doctest: +SKIP
    """

    def __init__(
        self,
        into: Path,
        data_dir: str | None = None,
        *,
        count: int,
        threads: int | None = None,
        options: Mapping[str, Any] | None = None,
        cluster: Literal["slurm", "local"] = "slurm",
        complete: bool = True,
    ) -> None:
        try:
            import submitit
        except ImportError as error:
            raise ImportError("submitit is not installed: pip install submitit") from error
        super().__init__(into, count)
        self._died = submitit.core.utils.UncompletedJobError
        self._arguments = (into, data_dir, threads, complete, extensions_for_workers())
        self._executor = submitit.AutoExecutor(into / "slurm" / "%j", cluster=cluster, slurm_max_num_timeout=1000)
        chosen = {"time": _A_DAY, "job_name": "sleepconv", "additional_parameters": {"requeue": True}}
        chosen |= {} if threads is None else {"cpus_per_task": threads}
        try:
            named = {f"slurm_{name}": value for name, value in {**chosen, **(options or {})}.items()}
            self._executor.update_parameters(timeout_min=_A_DAY, **named)
        except (NameError, ValueError) as error:
            raise ValueError(f"SLURM options: {error}") from error

    def _start(self, run: Run) -> Any:
        return self._executor.submit(_Requeueable((run, *self._arguments)))

    def _wait(self, worker: Any) -> str | None:
        while not worker.done():
            if self._stopped:  # it was cancelled; not every cluster tells when it ended
                return _STOPPED
            time.sleep(0.5)
        try:
            return worker.result()
        except self._died as error:
            raise WorkerDiedError(f"job {worker.job_id} ended, see {worker.paths.stderr}") from error

    def _cancel(self, worker: Any) -> None:
        worker.cancel()


@dataclass(frozen=True)
class _Requeueable:
    """`_train_remotely` with its arguments; submitit calls it again when the job was requeued."""

    arguments: tuple[Any, ...]

    def __call__(self) -> str | None:
        return _train_remotely(*self.arguments)

    def checkpoint(self) -> Any:
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)  # the training writes checkpoints itself


def _train_remotely(
    run: Run, into: Path, data_dir: str | None, threads: int | None, complete: bool, extensions: list[str]
) -> str | None:
    """Train a run in a worker on some machine; return why it failed, or None."""
    import torch

    from sleepconv.experiments.training import train

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        load_extensions(extensions)
        train(run, run_path(into, run), data_dir=data_dir, complete=complete, quiet=True)
    except (ValueError, TypeError, OSError, RuntimeError, ImportError) as error:
        return str(error)
    return None
