"""Two real processes, started by torchrun, against one."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from sleepconv.cli import main
from sleepconv.experiments.data import TensorSource, load_task
from sleepconv.experiments.runs import Run, RunFolder
from sleepconv.experiments.training import train

RUN = Run("small", "digits", "local", 3e-3, network="three_layers", sleep_every=3, padding=2, batch_size=500, epochs=2)


class Double(TensorSource):
    """Images in double precision: AdamW turns the rounding of a gradient that is almost zero into a whole step."""

    def batch(self, positions, chance):
        inputs, labels = super().batch(positions, chance)
        return inputs.double(), labels


def train_in_double_precision(folder: Path, **options: Any) -> None:
    task = load_task("digits", padding=2)
    train_source, evaluation = (Double(s.images, s.transform) for s in (task.train, task.evaluation))
    task = replace(task, train=train_source, evaluation=evaluation)
    torch.set_default_dtype(torch.float64)
    try:
        train(RUN, folder, task=task, device="cpu", quiet=True, **options)
    finally:
        torch.set_default_dtype(torch.float32)


def train_together(root: Path) -> None:
    """What each of the two processes does; one start of PyTorch serves all the tests."""
    torch.set_num_threads(1)
    assert main(["train", "demo_local", "--scale", "0.03", "--runs", str(root / "runs")]) == 0  # joins by itself
    dist.init_process_group("gloo", f"file://{root}/meeting", rank=int(os.environ["RANK"]), world_size=2)
    train_in_double_precision(root / "ddp", sharding="ddp")
    train_in_double_precision(root / "fsdp", sharding="fsdp")
    train_in_double_precision(root / "stopped", sharding="fsdp", max_steps=4)
    train_in_double_precision(root / "stopped", sharding="fsdp")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one process, two under DDP and two under FSDP2 end; two that stopped on their way; and what they said."""
    root = tmp_path_factory.mktemp("parallel")
    train_in_double_precision(root / "one")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*torchrun, __file__, str(root)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (root / "said").write_text(done.stdout)
    return root


@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_two_processes_end_where_one_does(root: Path, sharding: str):
    alone, together = (RunFolder(root / name).summary() for name in ("one", sharding))
    assert alone is not None
    assert together is not None
    assert together["images"] == alone["images"]
    assert together["loss"] == pytest.approx(alone["loss"], rel=1e-9)
    assert RunFolder(root / sharding).environment()["processes"] == 2
    one, two = (load_file(root / name / "model.safetensors") for name in ("one", sharding))
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-7, atol=1e-9, msg=lambda text, n=name: f"{n}: {text}")


def test_two_processes_go_on_where_they_stopped(root: Path, assert_same_end):
    assert len(RunFolder(root / "stopped").environments()) == 2
    assert_same_end(root / "fsdp", root / "stopped")


def test_of_two_processes_one_says_how_it_ended(root: Path):
    assert (root / "said").read_text().count("top-1") == 1


if __name__ == "__main__":
    train_together(Path(sys.argv[1]))
