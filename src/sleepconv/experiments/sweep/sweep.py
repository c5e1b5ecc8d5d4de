"""What `sleepconv sweep` does."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from sleepconv.experiments.paper import SEARCHES
from sleepconv.experiments.runs import RunFolder
from sleepconv.experiments.runs.listing import readable
from sleepconv.experiments.runs.searches import conclude
from sleepconv.experiments.sweep.jobs import Job, jobs_for, names_in
from sleepconv.experiments.sweep.processes import Processes
from sleepconv.experiments.sweep.ray_tasks import RayTasks
from sleepconv.experiments.sweep.workers import (
    JobFailedError,
    Orders,
    WorkerDiedError,
    Workers,
    absolute,
    available_cores,
)
from sleepconv.experiments.training.progress import terminated_like_interrupted

RESTARTS = 3
Say = Callable[[str], None]


@dataclass
class Outcome:
    """How a sweep ended.

    >>> Outcome(failed={"cifar10_local scale 1 seed 0": "the disk is full"}).complete
    False
    """

    done_before: list[Job] = field(default_factory=list)
    done: list[Job] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every run is there."""
        return not self.failed

    def as_text(self) -> str:
        """One line, and one more for each run that failed."""
        jobs = len(self.done_before) + len(self.done) + len(self.failed)
        line = f"{jobs} runs: {len(self.done)} done, {len(self.done_before)} done before, {len(self.failed)} failed"
        return "\n".join([line, *[f"failed: {title}: {why}" for title, why in self.failed.items()]])


def sweep(jobs: Sequence[Job], workers: Workers, say: Say) -> Outcome:
    """Train every run that is not done yet; a line is said about each event.

    A worker that dies is started again, at most `RESTARTS` times, and goes on from its checkpoint. A run that fails
    with an error is not, and the others go on.

    >>> from sleepconv.experiments.sweep import Orders, Processes
    >>> sweep([], Processes(2, Orders(threads=1)), say=print).complete
    0 runs, 0 of them done before; 2 at a time
    True
    """
    outcome = Outcome(done_before=[job for job in jobs if job.state == "done"])
    missing = [job for job in jobs if job.state != "done"]
    say(f"{len(jobs)} runs, {len(outcome.done_before)} of them done before; {workers.count} at a time")
    pool = ThreadPoolExecutor(workers.count)
    try:
        with terminated_like_interrupted("the sweep was stopped; the same command goes on"):
            futures = {pool.submit(_to_its_end, job, workers, say): job for job in missing}
            for future in as_completed(futures):
                job, error = futures[future], future.result()
                if error is None:
                    outcome.done.append(job)
                    say(f"done {job.title}: {_result(job)} ({_count(outcome)} of {len(jobs)})")
                else:
                    outcome.failed[job.title] = error
                    say(f"failed {job.title}: {error}")
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        workers.stop()
        raise
    finally:
        pool.shutdown()
    return outcome


def _to_its_end(job: Job, workers: Workers, say: Say) -> str | None:
    """Train a run, however often its worker dies; an error if it cannot be."""
    for restart in range(RESTARTS + 1):
        say(f"{'goes on' if job.state == 'begun' else 'started'} {job.title}")
        try:
            _train(job, workers, say)
            return None if job.state == "done" else f"it ended, but {job.folder} is {job.state}"
        except WorkerDiedError as error:
            if restart == RESTARTS:
                return f"{error}, {RESTARTS + 1} times"
            say(f"died {job.title}: {error}; it is started again ({restart + 1} of {RESTARTS})")
        except (JobFailedError, OSError) as error:
            return str(error)
    return None


def _train(job: Job, workers: Workers, say: Say) -> None:
    """Train a run to its end or its worker's; say if a checkpoint was found damaged, since workers are quiet."""
    checkpoints = RunFolder(job.folder).checkpoints
    before = checkpoints.set_aside()
    try:
        workers.train(job)
    finally:
        for path in checkpoints.set_aside():
            if path not in before:
                say(f"damaged {job.title}: a checkpoint was set aside as {path}; it went on without it")


def _count(outcome: Outcome) -> int:
    return len(outcome.done) + len(outcome.done_before)


def _result(job: Job) -> str:
    summary = RunFolder(job.folder).summary() or {}
    return f"top-1 {summary['top1']:.1f} % on the {summary['set']} set in {readable(summary['seconds'])}"


OPTIONS = ("names", "dataset", "seeds", "scale", "runs", "data_dir", "jobs", "threads", "ray", "dry_run")


def run(
    names: Sequence[str],
    *,
    say: Say,
    dataset: str | None = None,
    seeds: int = 1,
    scale: float = 1.0,
    runs: str = "runs",
    data_dir: str | None = None,
    jobs: int = 1,
    threads: int | None = None,
    ray: str | None = None,
    dry_run: bool = False,
    complete: bool = True,
) -> int:
    """Train what is missing; see `sleepconv sweep --help`.

    Returns:
        the exit code: 0 if every run is there at the end.
    """
    wanted = list(dict.fromkeys(each for name in names for each in names_in(name, dataset)))
    todo = jobs_for(wanted, seeds=seeds, scale=scale, runs=runs)
    if jobs < 1 or (threads is not None and threads < 1):
        raise ValueError(f"jobs={jobs} and threads={threads} are 1 or more")
    if dry_run:
        return _show(todo, say)
    orders = Orders(threads or max(1, available_cores() // jobs), absolute(data_dir), complete)
    workers: Workers = RayTasks(ray, orders) if ray else Processes(jobs, orders)
    outcome = sweep(todo, workers, say)
    concluded = [_conclude(grid, runs, scale, seeds, say) for grid in wanted if grid in SEARCHES]
    say(outcome.as_text())
    return 0 if outcome.complete and all(concluded) else 1


def _show(jobs: Sequence[Job], say: Say) -> int:
    for job in jobs:
        say(f"{job.state:5}  {job.title}")
    missing = sum(job.state != "done" for job in jobs)
    say(f"{missing} of {len(jobs)} runs would be trained")
    return 0


def _conclude(grid: str, runs: str, scale: float, seeds: int, say: Say) -> bool:
    """Whether every point of the grid is there, so that there is a best."""
    try:
        search = conclude(grid, runs, scale, range(seeds))
    except (ValueError, OSError) as error:
        say(f"no best of {grid} at scale {scale:g}: {error}")
        return False
    best = search.best
    say(
        f"best of {grid} at scale {scale:g}: learning rate {best.learning_rate:g}, weight decay {best.weight_decay:g} "
        f"(top-1 {best.top1:.1f} % on the validation split), in {search.write(runs)}"
    )
    return True
