"""Many runs: what a sweep has to train, the loop over it, and the workers on this machine, on Ray and on SLURM.

A worker trains one run, which is locked and resumable. A sweep therefore only has to start workers, start those that
die again, and report: killed at any moment, the same command trains what is still missing.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sleepconv.experiments.paper import RECIPES, SEARCHES, TABLES, datasets_of, recipe, table_rows
from sleepconv.experiments.paper.numbers import RATES
from sleepconv.experiments.runs import Run, RunFolder, run_path
from sleepconv.experiments.runs.listing import readable
from sleepconv.experiments.runs.machine import available_cores
from sleepconv.experiments.runs.searches import conclude
from sleepconv.experiments.training.progress import terminated_like_interrupted
from sleepconv.names import did_you_mean

RESTARTS = 3
_A_DAY = 24 * 60  # minutes
Say = Callable[[str], object]
Where = Literal["local", "ray", "slurm"]

__all__ = ["Processes", "RayTasks", "SlurmJobs", "names_in", "receive_run", "run_sweep", "runs_of", "sweep"]


def run_sweep(
    names: Sequence[str],
    *,
    say: Say,
    dataset: str | None = None,
    seeds: int = 1,
    scale: float = 1.0,
    runs: str = "runs",
    data_dir: str | None = None,
    jobs: int | None = None,
    threads: int | None = None,
    on: Where = "local",
    ray: str = "auto",
    slurm: Sequence[str] = (),
    dry_run: bool = False,
) -> int:
    """Train what is missing of some tables, searches or recipes, as ``sleepconv sweep`` does.

    Args:
        names: tables ("table1"), recipes, or searches ("cifar10_local_grid").
        say: called with a line about each event.
        dataset: the one of a table's datasets to train; by default all of them.
        seeds: the number of runs of each recipe, from seed 0.
        scale: the fraction of the epochs to train.
        runs: the folder of the run folders.
        data_dir: the folder of the datasets.
        jobs: the number of runs at a time; by default 1 on this machine, and as many as possible elsewhere.
        threads: the threads of each run; by default the cores divided by ``jobs``, on SLURM the cores of the job.
        on: where to train: "local", "ray" or "slurm".
        ray: the address of the Ray cluster.
        slurm: options of the SLURM jobs, each as "NAME=VALUE".
        dry_run: only report what would be trained.

    Returns:
        the exit code: 0 if every run is finished, otherwise 1.

    >>> run_sweep(["cifar10_local"], scale=0.1, runs="no/such/folder", dry_run=True, say=print)
    new    cifar10_local scale 0.1 seed 0
    1 of 1 runs would be trained
    0
    """
    wanted = list(dict.fromkeys(each for name in names for each in names_in(name, dataset)))
    into = Path(runs).resolve()
    data_dir = None if data_dir is None else str(Path(data_dir).expanduser().resolve())
    chosen = runs_of(wanted, seeds=seeds, scale=scale)
    for name, value in {"jobs": jobs, "threads": threads}.items():
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}")
    states = {run.title: RunFolder(run_path(into, run)).state(run) for run in chosen}
    missing = [run for run in chosen if states[run.title] != "done"]
    if dry_run:
        for title, state in states.items():
            say(f"{state:5}  {title}")
        say(f"{len(missing)} of {len(chosen)} runs would be trained")
        return 0
    workers: Workers
    if on == "ray":
        workers = RayTasks(into, data_dir, address=ray, threads=threads or available_cores(), count=jobs)
    elif on == "slurm":
        options = dict(_option(text) for text in slurm)
        workers = SlurmJobs(into, data_dir, threads=threads, count=jobs or len(missing) or 1, options=options)
    else:
        command = [sys.executable, "-m", "sleepconv", "train", "-", "--runs", str(into)]
        command += [] if data_dir is None else ["--data-dir", data_dir]
        workers = Processes(into, command, count=jobs or 1, threads=threads)
    before = len(chosen) - len(missing)
    say(f"{len(chosen)} runs, {before} of them done before; {workers.count} at a time")
    with terminated_like_interrupted("the sweep was stopped; the same command resumes it"):
        failed = sweep(missing, workers, say)
    concluded = [_report_best(search, into, scale, seeds, say) for search in wanted if search in SEARCHES]
    done = len(missing) - len(failed)
    say(f"{len(chosen)} runs: {done} done, {before} done before, {len(failed)} failed")
    for title, reason in failed.items():
        say(f"failed: {title}: {reason}")
    return 0 if not failed and all(concluded) else 1


def names_in(name: str, dataset: str | None = None) -> list[str]:
    """Return the recipes and searches that a name given to a sweep stands for.

    >>> names_in("table4", "cifar10")[0]
    'cifar10_padding0_convolutional'
    >>> names_in("table10", "cifar10")[0]
    'cifar10_padding0_convolutional_grid'
    """
    tables = {table if isinstance(table, str) else f"table{table}": table for table in TABLES}
    known = [*tables, *RECIPES, *SEARCHES]
    if name not in known:
        hint = did_you_mean(name, known) or "; give table1, a recipe of `sleepconv list`, or RECIPE_grid"
        if name == "table3":
            hint = "; its networks are those of table2, and `sleepconv brain score` fits them to recordings"
        raise ValueError(f"there is nothing to sweep called {name!r}{hint}")
    if name not in tables:
        own = recipe(name.removesuffix("_grid")).dataset
        if dataset not in (None, own):
            raise ValueError(f"{name} is a run on {own}, not on {dataset}")
        return [name]
    table = tables[name]
    datasets = datasets_of(table) if dataset is None else [dataset]
    recipes = [each for one in datasets for each in table_rows(table, one).values()]
    return [f"{each}_grid" for each in recipes] if table in RATES else recipes


def runs_of(names: Iterable[str], *, seeds: int, scale: float) -> list[Run]:
    """Return every run of these recipes and searches, seed by seed, so that whole tables are complete early.

    >>> [run.title for run in runs_of(["cifar10_local"], seeds=2, scale=0.1)]
    ['cifar10_local scale 0.1 seed 0', 'cifar10_local scale 0.1 seed 1']
    """
    if seeds < 1:
        raise ValueError(f"`seeds` must be at least 1, got {seeds}")
    points = [run for name in names for run in (SEARCHES[name]() if name in SEARCHES else [recipe(name)])]
    return [run.changed(seed=seed, scale=scale) for seed in range(seeds) for run in points]


def sweep(runs: Sequence[Run], workers: "Workers", say: Say) -> dict[str, str]:
    """Train these runs and report each event as a line.

    A worker that dies is started again, at most `RESTARTS` times. A run that fails does not stop the others.

    Returns:
        the title of each run that failed, and why.

    >>> sweep([], Processes(Path("runs"), ["sleepconv", "train", "-"], count=2), say=print)
    {}
    """
    failed: dict[str, str] = {}
    pool = ThreadPoolExecutor(min(workers.count, len(runs)) or 1)
    try:
        futures = {pool.submit(_train_to_the_end, run, workers, say): run for run in runs}
        for count, future in enumerate(as_completed(futures), 1):
            run, reason = futures[future], future.result()
            if reason is None:
                say(f"done {run.title}: {_result(run, workers)} ({count} of {len(runs)})")
            else:
                failed[run.title] = reason
                say(f"failed {run.title}: {reason}")
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        workers.stop()
        raise
    finally:
        pool.shutdown()
    return failed


def _train_to_the_end(run: Run, workers: "Workers", say: Say) -> str | None:
    """Train a run, restarting its worker if it dies; return why it failed, or None."""
    folder = RunFolder(run_path(workers.into, run))
    for restart in range(RESTARTS + 1):
        say(f"{'resumed' if folder.state(run) == 'begun' else 'started'} {run.title}")
        set_aside = folder.checkpoints.set_aside()
        try:
            reason = workers.train(run)
            state = folder.state(run)
            return reason or (None if state == "done" else f"its worker ended, but {folder.path} is {state}")
        except WorkerDiedError as error:
            if restart == RESTARTS:
                return f"{error}, {RESTARTS + 1} times"
            say(f"died {run.title}: {error}; restarting ({restart + 1} of {RESTARTS})")
        except OSError as error:
            return str(error)
        finally:  # workers are quiet
            for path in folder.checkpoints.set_aside():
                if path not in set_aside:
                    say(f"damaged {run.title}: a checkpoint was set aside as {path}, and not used")
    return None


def _result(run: Run, workers: "Workers") -> str:
    summary = RunFolder(run_path(workers.into, run)).summary() or {}
    return f"top-1 {summary['top1']:.1f} % on the {summary['set']} set in {readable(summary['seconds'])}"


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
                return "the sweep was stopped"
            self.running.append(worker := self._start(run))
        try:
            return self._wait(worker)
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
            env=os.environ | {"OMP_NUM_THREADS": self._threads, "MKL_NUM_THREADS": self._threads},
            start_new_session=True,  # Ctrl-C is for the sweep, which then asks its workers to stop
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # if it has ended already, its exit code tells
            process.stdin.write(json.dumps(asdict(run)) + "\n")
            process.stdin.flush()
        return process

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
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError("Ray is not installed: pip install 'sleepconv[ray]'") from error
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except ConnectionError as error:
            raise ConnectionError(f"no Ray cluster answers at {address}: {error}") from error
        resources: dict[str, Any] = ray.cluster_resources()
        gpus = 1 if resources.get("GPU") else 0
        most = max(1, int(resources["GPU"] if gpus else resources.get("CPU", 1) // threads))
        super().__init__(into, min(most, count or most))
        self._ray, self._arguments = ray, (into, data_dir, threads)
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
    ) -> None:
        try:
            import submitit
        except ImportError as error:
            raise ImportError("submitit is not installed: pip install 'sleepconv[slurm]'") from error
        super().__init__(into, count)
        self._died, self._arguments = submitit.core.utils.UncompletedJobError, (into, data_dir, threads)
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
                return "the sweep was stopped"
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


def _train_remotely(run: Run, into: Path, data_dir: str | None, threads: int | None) -> str | None:
    """Train a run in a worker on some machine; return why it failed, or None."""
    import torch

    from sleepconv.experiments.training import train

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        train(run, run_path(into, run), data_dir=data_dir, quiet=True)
    except (ValueError, TypeError, OSError, RuntimeError, ImportError) as error:
        return str(error)
    return None


def _option(text: str) -> tuple[str, int | str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"a SLURM option must be NAME=VALUE, like partition=gpu, got {text!r}")
    return name.replace("-", "_"), int(value) if value.isdecimal() else value


def _report_best(search: str, into: Path, scale: float, seeds: int, say: Say) -> bool:
    """Compare the points of a search and write the best; return False if a point is missing."""
    try:
        concluded = conclude(search, into, scale, range(seeds))
    except (ValueError, OSError) as error:
        say(f"no best of {search} at scale {scale:g}: {error}")
        return False
    best = concluded.best
    say(
        f"best of {search} at scale {scale:g}: learning rate {best.learning_rate:g}, "
        f"weight decay {best.weight_decay:g} (top-1 {best.top1:.1f} % on the validation split), "
        f"in {concluded.write(into)}"
    )
    return True
