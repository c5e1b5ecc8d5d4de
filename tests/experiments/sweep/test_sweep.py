import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from sleepconv.cli import main
from sleepconv.experiments.paper import SEARCHES
from sleepconv.experiments.results.searches import find_searches
from sleepconv.experiments.runs import RunFolder, run_path
from sleepconv.experiments.sweep import RESTARTS, names_in, run_sweep, runs_of, sweep
from sleepconv.experiments.training import train
from sleepconv.experiments.workers import Processes, WorkerDiedError, Workers


@pytest.fixture(autouse=True)
def _one_thread():
    """As in the workers: the order of sums, and so the last bit, depends on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run(small_run, tmp_path, lines):
    """Sweep over the small recipe, each run with one thread."""

    def sweep_small(*names, **options):
        settings = {"threads": 1, "data_dir": str(tmp_path / "data"), "runs": str(tmp_path / "runs")}
        return run_sweep(names, say=lines.append, **(settings | options))

    return sweep_small


def processes(into):
    return Processes(into, [sys.executable, "-m", "sleepconv", "train", "-", "--runs", str(into)], count=1, threads=1)


def test_a_run_that_fails_is_named_while_the_others_continue_and_those_that_are_done_are_skipped(run, lines, tmp_path):
    assert run("cifar100_convolutional", "small", scale=0.125) == 1
    assert lines[-2] == "2 runs: 1 done, 0 done before, 1 failed"
    assert lines[-1].startswith("failed: cifar100_convolutional scale 0.125")
    assert "run `sleepconv data get cifar100`" in lines[-1]
    assert sum("cifar100" in line and line.startswith("started") for line in lines) == 1  # it is not restarted
    lines.clear()
    assert run("small", scale=0.125, seeds=2, jobs=2) == 0
    assert lines[0] == "2 runs, 1 of them done before; 2 at a time"
    assert [line for line in lines if "seed 0" in line] == []
    assert lines[-1] == "2 runs: 1 done, 1 done before, 0 failed"
    assert (tmp_path / "runs/small/scale-0.125-seed-1/summary.json").is_file()


def test_a_killed_worker_is_restarted_and_its_run_ends_with_the_same_bits(
    tmp_path, lines, small_run, wait_for_a_checkpoint
):
    workers = processes(tmp_path / "killed")

    def kill_after_a_checkpoint():
        wait_for_a_checkpoint(workers.into, small_run)
        os.kill(workers.running[0].pid, signal.SIGKILL)

    threading.Thread(target=kill_after_a_checkpoint, daemon=True).start()
    assert sweep([small_run], workers, lines.append) == {}
    assert sum(line.startswith("died") and "SIGKILL" in line for line in lines) == 1
    assert sum(line.startswith("resumed") for line in lines) == 1
    train(small_run, run_path(tmp_path / "not", small_run), quiet=True)
    ends = [run_path(tmp_path / name, small_run) / "model.safetensors" for name in ("killed", "not")]
    assert ends[0].read_bytes() == ends[1].read_bytes()


def test_a_damaged_checkpoint_is_reported_although_workers_are_quiet(tmp_path, lines, small_run):
    run = small_run.changed(epochs=2)
    checkpoints = run_path(tmp_path, run) / "checkpoint"
    train(run, checkpoints.parent, max_steps=1, quiet=True)
    os.truncate(checkpoints / "step-00000001.safetensors", 100)
    assert sweep([run], processes(tmp_path), lines.append) == {}
    (line,) = [line for line in lines if line.startswith("damaged")]
    assert str(checkpoints / "step-00000001.damaged") in line


def test_a_finished_folder_of_another_recipe_is_not_taken_for_done(run, record, lines):
    record("cifar10_convolutional", top1=10.0, batch_size=256)
    assert run("cifar10_convolutional") == 1
    assert "was begun with another recipe: batch_size was 256, is now 512" in lines[-1]


class Dying(Workers):
    """Workers that always die."""

    started = 0

    def _start(self, run):
        self.started += 1

    def _wait(self, worker):
        raise WorkerDiedError("killed by SIGSEGV")

    def _cancel(self, worker):
        raise AssertionError("nobody stopped the sweep")


def test_a_worker_that_always_dies_is_given_up(tmp_path, lines):
    workers = Dying(tmp_path, count=1)
    failed = sweep(runs_of(["cifar10_local"], seeds=1, scale=1.0), workers, lines.append)
    assert workers.started == RESTARTS + 1
    assert failed == {"cifar10_local scale 1 seed 0": "killed by SIGSEGV, 4 times"}


SWEEP = """
import sys
from sleepconv.experiments.paper import RECIPES
from sleepconv.experiments.runs import Run
from sleepconv.experiments.sweep import run_sweep

RECIPES["small"] = Run.from_json(sys.argv[1])
run_sweep(["small"], runs=sys.argv[2], threads=1, say=print)
"""


@contextmanager
def under_way(run, into, wait_for_a_checkpoint):
    """The process of a sweep that has written a checkpoint."""
    command = [sys.executable, "-c", SWEEP, run.as_json(), str(into)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            wait_for_a_checkpoint(into, run)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_stop_with_their_sweep_and_can_resume(
    number, tmp_path, small_run, children, wait_for, wait_for_a_checkpoint
):
    run = small_run.changed(epochs=10_000)
    with under_way(run, tmp_path, wait_for_a_checkpoint) as process:
        (worker,) = children(process.pid)
        process.send_signal(number)
        _, said = process.communicate()
        assert process.returncode != 0
        if number == signal.SIGTERM:
            assert "TrainingInterrupted: the sweep was stopped; the same command resumes it" in said
    wait_for(lambda: not Path(f"/proc/{worker}").exists())
    folder = RunFolder(run_path(tmp_path, run))
    assert folder.state(run) == "begun"
    train(run, folder.path, max_steps=1, quiet=True)


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
        (["table1", "--seeds", "0"], "`seeds` must be at least 1, got 0"),
        (["table1", "--jobs", "0"], "`jobs` must be at least 1, got 0"),
        (["table1", "--on", "ray", "--slurm", "partition=gpu"], "--slurm needs --on slurm, got --on ray"),
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
    assert "best.json left out: not a record of a search" in line


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
    assert " 1 failed\nfailed: " in said
    assert f"{last / 'summary.json'} is damaged" in said.splitlines()[-1]
