import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from sleepconv.cli import main
from sleepconv.experiments.paper import SEARCHES
from sleepconv.experiments.runs.searches import find_searches
from sleepconv.experiments.sweep import Job, Orders, Processes, jobs_for, names_in, sweep
from sleepconv.experiments.sweep.sweep import RESTARTS
from sleepconv.experiments.sweep.sweep import run as run_sweep
from sleepconv.experiments.sweep.workers import JobFailedError, WorkerDiedError, carry_out
from sleepconv.experiments.training import train

ONE_EPOCH = 0.005


@pytest.fixture
def lines():
    return []


@pytest.fixture
def run(small_cifar10, data_dir, tmp_path, lines):
    """Sweep over the small files, each run with one thread."""

    def sweep_small(*names, **options):
        settings = {"scale": ONE_EPOCH, "threads": 1, "data_dir": str(data_dir), "runs": str(tmp_path / "runs")}
        return run_sweep(names, say=lines.append, complete=False, **(settings | options))

    return sweep_small


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def test_runs_what_is_missing_and_skips_what_is_done(run, lines, tmp_path):
    assert run("cifar10_convolutional") == 0
    assert lines[-1] == "1 runs: 1 done, 0 done before, 0 failed"
    lines.clear()
    assert run("cifar10_convolutional", seeds=2, jobs=2) == 0
    assert lines[0] == "2 runs, 1 of them done before; 2 at a time"
    assert [line for line in lines if "seed 0" in line] == []
    assert lines[-1] == "2 runs: 1 done, 1 done before, 0 failed"
    assert (tmp_path / "runs/cifar10_convolutional/scale-0.005-seed-1/summary.json").is_file()


def test_a_killed_worker_is_started_again_and_its_run_ends_with_the_same_bits(tmp_path, lines, small_run):
    orders, killed, undisturbed = Orders(threads=1), *(Job(small_run, tmp_path / name) for name in ("killed", "not"))
    workers = Processes(1, orders)
    threading.Thread(target=_kill_after_a_checkpoint, args=(killed, workers), daemon=True).start()
    assert sweep([killed], workers, lines.append).complete
    assert sum(line.startswith("died") and "SIGKILL" in line for line in lines) == 1
    assert sum(line.startswith("goes on") for line in lines) == 1
    carry_out(orders.of(undisturbed))
    ends = [(job.folder / "model.safetensors").read_bytes() for job in (killed, undisturbed)]
    assert ends[0] == ends[1]


def test_a_damaged_checkpoint_is_said_although_workers_are_quiet(tmp_path, lines, small_run):
    job = Job(small_run.changed(epochs=2), tmp_path / "run")
    train(job.run, job.folder, max_steps=1, quiet=True)
    os.truncate(job.folder / "checkpoint" / "step-00000001.safetensors", 100)
    assert sweep([job], Processes(1, Orders(threads=1)), lines.append).complete
    (line,) = [line for line in lines if line.startswith("damaged")]
    assert str(job.folder / "checkpoint" / "step-00000001.damaged") in line


def _kill_after_a_checkpoint(job, workers):
    wait_for(lambda: list((job.folder / "checkpoint").glob("*.safetensors")))
    os.kill(next(iter(workers.running)).pid, signal.SIGKILL)


def test_a_run_that_fails_is_named_and_not_started_again_while_the_others_go_on(run, lines, data_dir):
    assert run("cifar100_convolutional", "cifar10_convolutional") == 1
    assert lines[-1].startswith("2 runs: 1 done, 0 done before, 1 failed\nfailed: cifar100_convolutional scale 0.005")
    assert "run `sleepconv data get cifar100`" in lines[-1]
    assert sum("cifar100" in line and line.startswith("started") for line in lines) == 1


def test_a_finished_folder_of_another_recipe_is_not_taken_for_done(run, record, lines):
    record("cifar10_convolutional", top1=10.0, scale=ONE_EPOCH, batch_size=256)
    assert run("cifar10_convolutional") == 1
    assert "was begun with another recipe: batch_size was 256, is now 512" in lines[-1]


class Dying:
    """Workers that die a number of times."""

    count = 1

    def __init__(self, deaths):
        self.deaths, self.started = deaths, 0

    def train(self, job):
        self.started += 1
        if self.started <= self.deaths:
            raise WorkerDiedError("the worker died of SIGSEGV")
        raise JobFailedError("the end of this test")

    def stop(self):
        raise AssertionError("nobody stopped the sweep")


def test_a_worker_that_always_dies_is_given_up(tmp_path, lines):
    jobs = jobs_for(["cifar10_local"], seeds=1, scale=1.0, runs=tmp_path)
    workers = Dying(deaths=100)
    outcome = sweep(jobs, workers, lines.append)
    assert workers.started == RESTARTS + 1
    assert outcome.failed == {"cifar10_local scale 1 seed 0": "the worker died of SIGSEGV, 4 times"}


SWEEP = """
import sys
from pathlib import Path
from sleepconv.experiments.sweep import Job, Orders, Processes, sweep
from sleepconv.experiments.runs import Run

sweep([Job(Run.from_json(sys.argv[1]), Path(sys.argv[2]))], Processes(1, Orders(threads=1)), print)
"""


@contextmanager
def under_way(job):
    """The process of a sweep that has written a checkpoint."""
    command = [sys.executable, "-c", SWEEP, job.run.as_json(), str(job.folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            wait_for(lambda: list((job.folder / "checkpoint").glob("*.safetensors")))
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_stop_with_their_sweep_and_can_go_on(number, tmp_path, small_run):
    job = Job(small_run.changed(epochs=10_000), tmp_path / "run")
    with under_way(job) as process:
        (worker,) = _children(process.pid)
        process.send_signal(number)
        _, said = process.communicate()
        assert process.returncode != 0
        if number == signal.SIGTERM:
            assert "TrainingInterrupted: the sweep was stopped; the same command goes on" in said
    wait_for(lambda: not Path(f"/proc/{worker}").exists())
    assert job.state == "begun"
    train(job.run, job.folder, max_steps=1, quiet=True)


def _children(pid):
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [child for file in lists for child in file.read_text().split()]


def test_a_table_stands_for_its_rows_and_a_table_of_hyperparameters_for_its_searches():
    assert names_in("table1", "cifar100")[2] == "cifar100_4_repetitions"
    assert len(names_in("table1")) == 24
    assert names_in("table7", "cifar10") == names_in("table4", "cifar10")
    assert names_in("table12", "tiny-imagenet")[0] == "tiny_imagenet_padding8_convolutional_grid"
    assert len(names_in("table13")) == 9


def test_wrong_names_and_numbers_are_one_line(capsys, tmp_path):
    for arguments, message in [
        (["tabel1"], "did you mean 'table1'?"),
        (["cifar10_locall"], "did you mean 'cifar10_local'?"),
        (["cifar10_local", "--dataset", "cifar100"], "cifar10_local is a run on cifar10, not on cifar100"),
        (["table1", "--dataset", "imagenet"], "table 1 has cifar10, cifar100, tiny-imagenet"),
        (["table1", "--seeds", "0"], "seeds=0 is 1 or more"),
        (["table1", "--jobs", "0"], "jobs=0"),
        (["table1", "--scale", "-1"], "`scale` must be finite and above 0, got -1.0"),
    ]:
        assert main(["sweep", *arguments, "--runs", str(tmp_path)]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_a_dry_run_shows_what_would_be_trained_and_trains_nothing(record, tmp_path, capsys):
    record("cifar10_local", top1=50.0, scale=0.1)
    command = ["sweep", "table1", "--dataset", "cifar10", "--scale", "0.1", "--runs", str(tmp_path / "runs")]
    assert main([*command, "--dry-run"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == "7 of 8 runs would be trained"
    assert "done   cifar10_local scale 0.1 seed 0" in shown
    assert not (tmp_path / "runs/cifar10_convolutional").exists()


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"grid": "a", "scale": 1, "trials": [3]}', '{"grid": "a", "scale": 1, "trials": []}']
)
def test_a_damaged_record_of_a_search_is_named(tmp_path, content: str):
    (tmp_path / "best.json").write_text(content)
    searches, (line,) = find_searches([tmp_path])
    assert searches == []
    assert "best.json left out: it is no record of a grid search" in line


def test_a_damaged_run_fails_alone_and_other_searches_have_their_best(record, tmp_path, capsys):
    for grid in ("cifar10_local_grid", "cifar10_convolutional_grid"):
        *_, last = [record("", top1=30.0, run=run.changed(scale=0.5)) for run in SEARCHES[grid]()]
    (last / "summary.json").write_text("{half")
    names = ["cifar10_convolutional_grid", "cifar10_local_grid"]
    assert main(["sweep", *names, "--scale", "0.5", "--runs", str(tmp_path / "runs"), "--dry-run"]) == 0
    assert capsys.readouterr().out.count("damaged ") == 1
    assert main(["sweep", *names, "--scale", "0.5", "--runs", str(tmp_path / "runs")]) == 1
    said = capsys.readouterr().out
    assert "no best of cifar10_convolutional_grid at scale 0.5: " in said
    assert "\nbest of cifar10_local_grid at scale 0.5: " in said
    assert "1 failed\nfailed: " in said
    assert f"{last / 'summary.json'} is damaged" in said.splitlines()[-1]
