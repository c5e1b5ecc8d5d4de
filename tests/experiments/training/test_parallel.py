"""Two real processes, started by torchrun, against one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sleepconv.experiments.runs import Run, RunFolder

RUN = Run("small", "digits", "local", 3e-3, network="three_layers", sleep_every=3, padding=2, batch_size=500, epochs=2)
TRAIN = """
import dataclasses, sys, torch, torch.distributed
from sleepconv.experiments.data import TensorSource, load_task
from sleepconv.experiments import Run, train

class Double(TensorSource):
    def batch(self, positions, chance):
        inputs, labels = super().batch(positions, chance)
        return inputs.double(), labels

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
recipe, *orders = sys.argv[1:]
task = load_task("digits", padding=2)
train_source, evaluation = (Double(s.images, s.transform) for s in (task.train, task.evaluation))
task = dataclasses.replace(task, train=train_source, evaluation=evaluation)
if len(orders) > 1:
    torch.distributed.init_process_group("gloo")
for order in orders:
    sharding, stop, folder = order.split(" ", 2)
    train(Run.from_json(open(recipe).read()), folder, task=task, sharding=sharding, device="cpu", quiet=True,
          max_steps=int(stop) or None)
if len(orders) > 1:
    torch.distributed.destroy_process_group()
"""


def train_on(processes: int, root: Path, *orders: str) -> None:
    """Carry out orders: sharding, steps to stop after (0: none) and folder.

    In double precision: AdamW turns the rounding of a gradient that is almost zero into a whole step.
    """
    script, recipe = root / "script.py", root / "recipe"
    script.write_text(TRAIN)
    recipe.write_text(RUN.as_json())
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    launch = [sys.executable, *(torchrun if processes > 1 else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*launch, str(script), str(recipe), *orders]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where one process, two under DDP and two under FSDP2 end; and two that stopped on their way."""
    root = tmp_path_factory.mktemp("parallel")
    folders = {name: root / name for name in ("one", "ddp", "fsdp", "stopped")}
    train_on(1, root, f"ddp 0 {folders['one']}")
    train_on(2, root, f"ddp 0 {folders['ddp']}", f"fsdp 0 {folders['fsdp']}", f"fsdp 4 {folders['stopped']}")
    return folders


@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_two_processes_end_where_one_does(ends: dict[str, Path], sharding: str):
    alone, together = (RunFolder(ends[name]).summary() for name in ("one", sharding))
    assert alone is not None
    assert together is not None
    assert together["images"] == alone["images"]
    assert together["loss"] == pytest.approx(alone["loss"], rel=1e-9)
    assert RunFolder(ends[sharding]).environment()["processes"] == 2
    one, two = (load_file(ends[name] / "model.safetensors") for name in ("one", sharding))
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-7, atol=1e-9, msg=lambda text, n=name: f"{n}: {text}")


def test_two_processes_go_on_where_they_stopped(ends: dict[str, Path], tmp_path: Path, assert_same_end):
    assert RunFolder(ends["stopped"]).summary() is None
    train_on(2, tmp_path, f"fsdp 0 {ends['stopped']}")
    assert_same_end(ends["fsdp"], ends["stopped"])


def test_of_two_processes_one_says_how_it_ended(tmp_path: Path):
    command = ["-m", "sleepconv", "train", "demo_local", "--scale", "0.03", "--runs", str(tmp_path)]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    options = {"env": environment, "capture_output": True, "text": True, "check": False}
    done = subprocess.run([sys.executable, *torchrun, *command], **options)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("top-1") == 1
