"""A sweep on a real local Ray cluster with two workers, one of which is killed on the way."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sleepconv.experiments.runs import RunFolder, run_path
from sleepconv.experiments.sweep import runs_of, sweep
from sleepconv.experiments.workers import RayTasks

# Ray reads its token once, when it is imported: one for all clusters of these tests, whatever token the user has.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
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


def kill_a_worker(head, killed):
    titles = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(head)}
    pid = next(pid for pid, title in titles.items() if title.startswith(b"ray::_train_remotely"))
    os.kill(pid, signal.SIGKILL)
    killed.append(pid)


def test_two_workers_finish_although_one_is_killed(cluster, tmp_path, lines, small_run, wait_for_a_checkpoint):
    head, address = cluster
    killed = []
    runs = [small_run.changed(seed=seed) for seed in range(3)]
    workers = RayTasks(tmp_path, address=address, threads=1)
    assert workers.count == 2

    def kill_after_a_checkpoint():
        wait_for_a_checkpoint(tmp_path, runs[0])
        kill_a_worker(head, killed)

    threading.Thread(target=kill_after_a_checkpoint, daemon=True).start()
    assert sweep(runs, workers, lines.append) == {}
    assert len(killed) == 1
    assert sum(line.startswith("died") for line in lines) == 1


def test_a_run_that_fails_says_why_and_is_not_restarted(cluster, data_dir, tmp_path, lines):
    _, address = cluster
    runs = runs_of(["cifar100_convolutional"], seeds=1, scale=0.1)
    (reason,) = sweep(runs, RayTasks(tmp_path, str(data_dir), address=address, threads=1), lines.append).values()
    assert "run `sleepconv data get cifar100`" in reason
    assert not any(line.startswith("died") for line in lines)


def test_an_interrupted_sweep_stops_its_tasks(cluster, tmp_path, lines, small_run, wait_for, wait_for_a_checkpoint):
    _, address = cluster
    run = small_run.changed(epochs=10_000)
    workers = RayTasks(tmp_path, address=address, threads=1)

    def interrupt_after_a_checkpoint():
        wait_for_a_checkpoint(tmp_path, run)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_after_a_checkpoint, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        sweep([run], workers, lines.append)
    wait_for(lambda: not held(tmp_path, run))


def held(into, run):
    """Whether a worker holds the run's lock."""
    try:
        with RunFolder(run_path(into, run)).locked():
            return False
    except RuntimeError:
        return True
