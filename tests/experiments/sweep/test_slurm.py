"""SLURM jobs through submitit, on its local executor: the same scripts, signals and pickles without a cluster."""

import os
import signal
import threading
from pathlib import Path

import pytest

from sleepconv.cli import main
from sleepconv.experiments.runs import RunFolder, run_path
from sleepconv.experiments.sweep import runs_of, sweep
from sleepconv.experiments.workers import SlurmJobs

pytest.importorskip("submitit", reason="needs submitit: pip install 'sleepconv[slurm]'")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_a_preempted_job_is_requeued_and_resumes_its_run(tmp_path, lines, small_run, children, wait_for_a_checkpoint):
    workers = SlurmJobs(tmp_path, count=2, threads=1, cluster="local")

    def preempt_after_a_checkpoint():
        wait_for_a_checkpoint(tmp_path, small_run)
        (task,) = children(workers.running[0].job_id)
        os.kill(task, signal.SIGUSR2)

    threading.Thread(target=preempt_after_a_checkpoint, daemon=True).start()
    assert sweep([small_run], workers, lines.append) == {}
    assert not any(line.startswith("died") for line in lines)
    folder = RunFolder(run_path(tmp_path, small_run))
    assert folder.state(small_run) == "done"
    assert len(folder.environments()) == 2


def test_a_run_that_fails_says_why_and_is_not_restarted(tmp_path, data_dir, lines):
    workers = SlurmJobs(tmp_path, str(data_dir), count=1, threads=1, cluster="local")
    (reason,) = sweep(runs_of(["cifar100_convolutional"], seeds=1, scale=0.1), workers, lines.append).values()
    assert "run `sleepconv data get cifar100`" in reason
    assert not any(line.startswith("died") for line in lines)


def test_options_that_slurm_does_not_have_are_refused(tmp_path, capsys):
    command = ["sweep", "cifar10_local", "--runs", str(tmp_path), "--slurm"]
    assert main([*command, "partition"]) == 1
    assert "must be NAME=VALUE, like partition=gpu, got 'partition'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="SLURM options: .*parttition"):
        SlurmJobs(tmp_path, count=1, options={"parttition": "gpu"}, cluster="local")
