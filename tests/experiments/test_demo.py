"""The demo's claim, with one network of each kind and fewer epochs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sleepconv import cli
from sleepconv.experiments.figures.visual_field import read_visual_field
from sleepconv.experiments.runs import find_runs
from sleepconv.experiments.shift_demo import DEMO_NETWORKS, _train_and_test, demo_run, run_demo
from sleepconv.experiments.training import TrainingInterrupted


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def accuracy(out):
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda *texts, file=None: printed.extend(texts if file is None else []))
        assert cli.main(["demo", "--out", str(out), "--seeds", "1", "--scale", "0.33", "--json"]) == 0
    return json.loads(printed[0])


def mean(columns, accuracy):
    return sum(accuracy[str(column)] for column in columns) / len(columns)


def test_every_network_recognises_digits_where_it_has_seen_them(accuracy):
    for network in DEMO_NETWORKS:
        assert mean(range(5), accuracy[network]) > 80


def test_a_convolution_recognises_them_everywhere(accuracy):
    assert min(accuracy["convolutional"].values()) > 80


def test_a_local_network_knows_nothing_on_the_right(accuracy):
    assert max(accuracy["local"][str(column)] for column in range(8, 17)) < 30


def test_with_sleep_it_recognises_digits_twelve_pixels_from_where_it_has_seen_one_and_not_between(accuracy):
    assert mean(range(12, 17), accuracy["local with sleep"]) > 80
    assert mean(range(6, 11), accuracy["local with sleep"]) < 40


def test_it_writes_maps_a_report_and_runs_and_nothing_half_done(accuracy, out):
    assert {path.name for path in out.iterdir()} == {"accuracy-maps.png", "accuracy-maps.svg", "report.html", "runs"}
    assert "Digits where no digit was ever seen" in (out / "report.html").read_text(encoding="utf-8")
    assert len(find_runs(out)) == len(DEMO_NETWORKS)


def test_the_three_networks_differ_only_in_connectivity_and_sleep():
    runs = [demo_run(network).changed(name="same", connectivity="local", sleep_every=None) for network in DEMO_NETWORKS]
    assert runs[0] == runs[1] == runs[2]


def test_a_network_that_has_learned_its_grids_does_as_well(tmp_path):
    run = demo_run("local with sleep", scale=0.33, grids="learned")
    assert (run.name, run.grids) == (f"{DEMO_NETWORKS['local with sleep']}_learned_grids", "learned")
    _train_and_test(run, str(tmp_path))
    columns = read_visual_field(find_runs(tmp_path)[0]).by_column()
    assert sum(columns[column] for column in range(12, 17)) / 5 > 80
    assert sum(columns[column] for column in range(6, 11)) / 5 < 40


def test_only_the_network_that_sleeps_learns_its_grids():
    assert demo_run("local", grids="learned") == demo_run("local")


def test_no_seeds_are_refused(tmp_path, capsys):
    assert cli.main(["demo", "--out", str(tmp_path), "--seeds", "0"]) == 1
    assert "`seeds` must be at least 1, got 0" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_a_terminated_demo_leaves_nothing_and_says_143(tmp_path):
    before_children = children(os.getpid())
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(TrainingInterrupted) as stopped:
        run_demo(tmp_path, seeds=1, scale=0.01, say=lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert stopped.value.exit_code == 143
    assert list(tmp_path.iterdir()) == []
    assert children(os.getpid()) == before_children
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_a_killed_demo_takes_its_workers_with_it(tmp_path):
    command = [sys.executable, "-m", "sleepconv", "demo", "--out", str(tmp_path)]
    core = min(os.sched_getaffinity(0))  # on one core, the demo has one worker at a time
    demo = subprocess.Popen(command, stderr=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    while not list(tmp_path.rglob("metrics.jsonl")):
        assert demo.poll() is None
        time.sleep(0.1)
    workers = children(demo.pid)
    assert workers
    demo.kill()
    demo.wait()
    deadline = time.monotonic() + 60
    while any(_is_alive(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def children(process: int) -> list[int]:
    lists = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for file in lists for child in file.read_text().split()]


def _is_alive(process: int) -> bool:
    """Neither gone nor a zombie that nobody has buried."""
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_networks_can_learn_without_weight_transport(tmp_path, capsys):
    assert demo_run("local with sleep", wake="kolen_pollack").wake == "kolen_pollack"
    assert cli.main(["demo", "--wake", "magic", "--out", str(tmp_path)]) == 1
    assert "`wake` must be one of backprop, feedback_alignment" in capsys.readouterr().err
