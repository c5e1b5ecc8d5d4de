"""A sweep on a real local Ray cluster with two workers, one of which is killed on the way."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sleepconv.experiments.sweep import Job, Orders, RayTasks, jobs_for, sweep

ray = pytest.importorskip("ray")


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def cluster(tmp_path_factory):
    """A head node with two cores; what it started ends with it."""
    port = _free_port()
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
    command += ["--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"]
    log = (tmp_path_factory.mktemp("ray") / "log").open("w+")
    # Ray's workers make way for everything else, which on a busy machine is for ever.
    environment = os.environ | {"RAY_worker_niceness": "0"}
    process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
    yield process.pid, f"127.0.0.1:{port}"
    ray.shutdown()
    process.terminate()
    process.wait(60)
    log.close()


def descendants(pid):
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for file in lists for child in file.read_text().split()]
    return [each for child in children for each in (child, *descendants(child))]


def kill_a_worker(head, folder, killed):
    """Once its run has a checkpoint."""
    while not list((folder / "checkpoint").glob("*.safetensors")):
        threading.Event().wait(0.05)
    titles = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(head)}
    pid = next(pid for pid, title in titles.items() if title.startswith(b"ray::carry_out"))
    os.kill(pid, signal.SIGKILL)
    killed.append(pid)


def test_two_workers_finish_although_one_is_killed(cluster, tmp_path, small_run):
    head, address = cluster
    lines, killed = [], []
    jobs = [Job(small_run.changed(seed=seed), tmp_path / f"seed-{seed}") for seed in range(3)]
    workers = RayTasks(address, Orders(threads=1))
    assert workers.count == 2
    threading.Thread(target=kill_a_worker, args=(head, jobs[0].folder, killed), daemon=True).start()
    outcome = sweep(jobs, workers, lines.append)
    assert len(killed) == 1
    assert sum(line.startswith("died") for line in lines) == 1
    assert outcome.complete
    assert all(job.state == "done" for job in jobs)


def test_a_run_that_fails_says_why_and_is_not_started_again(cluster, data_dir, tmp_path):
    _, address = cluster
    lines = []
    jobs = jobs_for(["cifar100_convolutional"], seeds=1, scale=0.1, runs=tmp_path / "runs")
    outcome = sweep(jobs, RayTasks(address, Orders(1, str(data_dir))), lines.append)
    assert "run `sleepconv data get cifar100`" in next(iter(outcome.failed.values()))
    assert not any(line.startswith("died") for line in lines)
