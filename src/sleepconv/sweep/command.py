"""What `sleepconv sweep` does."""

from collections.abc import Callable, Sequence

from sleepconv.recipes import GRIDS
from sleepconv.sweep.jobs import Job, jobs_for, names_in
from sleepconv.sweep.processes import Processes
from sleepconv.sweep.ray_tasks import RayTasks
from sleepconv.sweep.search import conclude
from sleepconv.sweep.sweep import sweep
from sleepconv.sweep.workers import Orders, Workers, absolute, available_cores

OPTIONS = ("names", "dataset", "seeds", "scale", "runs", "data_dir", "jobs", "threads", "ray", "dry_run")
Say = Callable[[str], None]


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
    concluded = [_conclude(grid, runs, scale, seeds, say) for grid in wanted if grid in GRIDS]
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
