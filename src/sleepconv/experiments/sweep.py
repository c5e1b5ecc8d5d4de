"""Many runs: what a sweep has to train, and the loop over it.

A worker trains one run, which is locked and resumable. A sweep therefore only has to start workers (see
`sleepconv.experiments.workers`), restart those that die, and report: killed at any moment, the same command trains what
is still missing.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from math import inf
from pathlib import Path
from time import sleep
from typing import Literal

from sleepconv.experiments.interrupts import terminated_like_interrupted
from sleepconv.experiments.paper import RECIPES, SEARCHES, TABLES, datasets_of, recipe, table_rows, varied
from sleepconv.experiments.paper.numbers import RATES
from sleepconv.experiments.results.listing import readable
from sleepconv.experiments.results.searches import conclude
from sleepconv.experiments.runs import Run, RunFolder, run_path
from sleepconv.experiments.runs.machine import available_cores
from sleepconv.experiments.runs.registry import load_extensions
from sleepconv.experiments.workers import Processes, RayTasks, SlurmJobs, WorkerDiedError, Workers
from sleepconv.files import output_folder
from sleepconv.names import did_you_mean

RESTARTS = 3
Say = Callable[[str], object]
Where = Literal["local", "ray", "slurm"]

__all__ = ["Processes", "RayTasks", "SlurmJobs", "names_in", "run_sweep", "runs_of", "sweep"]


def run_sweep(
    names: Sequence[str],
    *,
    say: Say,
    dataset: str | None = None,
    seeds: int = 1,
    scale: float = 1.0,
    settings: Sequence[str] = (),
    runs: str = "runs",
    data_dir: str | None = None,
    complete: bool = True,
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
        settings: changes of every recipe, each as "FIELD=VALUE"; the names of the runs tell them.
        runs: the folder of the run folders.
        data_dir: the folder of the datasets.
        complete: require the datasets' official number of images.
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
    into = output_folder(runs).resolve()
    data_dir = None if data_dir is None else str(Path(data_dir).expanduser().resolve())
    chosen = runs_of(wanted, seeds=seeds, scale=scale, settings=settings)
    options = dict(_option(text) for text in slurm)
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
        cores = threads or available_cores()
        workers = RayTasks(into, data_dir, address=ray, threads=cores, count=jobs, complete=complete)
    elif on == "slurm":
        count = jobs or len(missing) or 1
        workers = SlurmJobs(into, data_dir, threads=threads, count=count, options=options, complete=complete)
    else:
        command = [sys.executable, "-m", "sleepconv", "train", "-", "--runs", str(into)]
        command += [] if data_dir is None else ["--data-dir", data_dir]
        command += [] if complete else ["--incomplete"]
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
    load_extensions()
    tables = {table if isinstance(table, str) else f"table{table}": table for table in TABLES}
    known = [*tables, *RECIPES, *SEARCHES]
    if name not in known:
        hint = did_you_mean(name, known, otherwise="give table1, a recipe of `sleepconv list`, or RECIPE_grid")
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


def runs_of(names: Iterable[str], *, seeds: int, scale: float, settings: Sequence[str] = ()) -> list[Run]:
    """Return every run of these recipes and searches, seed by seed, so that whole tables are complete early.

    >>> [run.title for run in runs_of(["cifar10_local"], seeds=2, scale=0.1)]
    ['cifar10_local scale 0.1 seed 0', 'cifar10_local scale 0.1 seed 1']
    >>> runs_of(["cifar10_local"], seeds=1, scale=1.0, settings=["epochs=800"])[0].name
    'cifar10_local-epochs=800'
    """
    if seeds < 1:
        raise ValueError(f"`seeds` must be at least 1, got {seeds}")
    names = list(names)
    if settings and (searches := [name for name in names if name in SEARCHES]):
        raise ValueError(f"settings change recipes, but {searches[0]} is a search, whose points stay as they are")
    if fixed := [text for text in settings if text.partition("=")[0] in ("seed", "scale", "name")]:
        raise ValueError(f"{fixed[0]} cannot be set for all runs of a sweep; use --seeds or --scale")
    points = [run for name in names for run in (SEARCHES[name]() if name in SEARCHES else [varied(name, settings)])]
    return [run.changed(seed=seed, scale=scale) for seed in range(seeds) for run in points]


def sweep(runs: Sequence[Run], workers: Workers, say: Say) -> dict[str, str]:
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
        _stop(workers, pool)
        raise
    pool.shutdown()
    return failed


def _stop(workers: Workers, pool: ThreadPoolExecutor) -> None:
    """Stop the workers and wait for their end, also if another signal comes meanwhile."""
    while True:
        try:
            pool.shutdown(wait=False, cancel_futures=True)
            workers.stop()
            pool.shutdown()
            while workers.running:  # a signal that interrupts `shutdown` may let it return too early the next time
                sleep(0.02)
            return
        except KeyboardInterrupt:
            continue


def _train_to_the_end(run: Run, workers: Workers, say: Say) -> str | None:
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


def _result(run: Run, workers: Workers) -> str:
    summary = RunFolder(run_path(workers.into, run)).summary() or {}
    awake = ", without any sleep: it was too short" if run.never_sleeps(summary.get("steps", inf)) else ""
    return f"top-1 {summary['top1']:.1f} % on the {summary['set']} set in {readable(summary['seconds'])}{awake}"


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
