"""Real processes, really killed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sleepconv.experiments.runs import Run, RunFolder
from sleepconv.experiments.training import train

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
KILLS = 50
# A process that has imported PyTorch but not used it starts the trainings, each in a process of its own: fifty of them
# would otherwise import it fifty times.
NURSERY = """
import os, signal, sys
import sklearn.datasets, torch._dynamo  # what a training would import while it runs
from sleepconv.experiments.runs import Run
from sleepconv.experiments.training import checkpoints, train

signal.signal(signal.SIGCHLD, signal.SIG_IGN)

def die_in_the_middle_of_a_checkpoint():
    whole = checkpoints.save_file
    def half(tensors, path, metadata):
        whole(tensors, path, metadata)
        if "00000006" in str(path):
            os.truncate(path, os.path.getsize(path) // 2)
            os.kill(os.getpid(), signal.SIGKILL)
    checkpoints.save_file = half

for line in sys.stdin:
    folder, fatal = line.rstrip().rsplit("|", 1)
    child = os.fork()
    if child == 0:
        import torch
        torch.set_num_threads(1)
        if fatal == "fatal":
            die_in_the_middle_of_a_checkpoint()
        train(Run.from_json(open(sys.argv[1]).read()), folder, quiet=True)
        os._exit(0)
    print(child, flush=True)
"""


class Nursery:
    def __init__(self, recipe: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY, str(recipe)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def start(self, folder: Path, *, fatal: bool = False) -> int:
        self.process.stdin.write(f"{folder}|{'fatal' if fatal else ''}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
    while alive(process):
        time.sleep(0.001)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory, small: Run) -> Iterator[Nursery]:
    recipe = tmp_path_factory.mktemp("nursery") / "recipe"
    recipe.write_text(small.as_json())
    nursery = Nursery(recipe)
    yield nursery
    nursery.process.stdin.close()
    nursery.process.wait()


def test_fifty_kills_at_random_moments_change_nothing(tmp_path: Path, small: Run, nursery: Nursery, assert_same_end):
    whole = nursery.start(tmp_path / "whole")
    start = time.monotonic()
    while alive(whole):
        time.sleep(0.01)
    took = time.monotonic() - start
    chance, ends = random.Random(0), [tmp_path / "run 0"]
    for _ in range(KILLS):
        child = nursery.start(ends[-1])
        time.sleep(chance.uniform(0, 0.3 * took))
        kill(child)
        if RunFolder(ends[-1]).summary() is not None:
            ends.append(tmp_path / f"run {len(ends)}")
    train(small, ends[-1], quiet=True)
    for end in ends:
        assert_same_end(tmp_path / "whole", end)


def test_a_kill_in_the_middle_of_a_checkpoint_leaves_the_one_before(tmp_path: Path, small: Run, nursery: Nursery):
    child = nursery.start(tmp_path / "run", fatal=True)
    while alive(child):
        time.sleep(0.01)
    checkpoints = RunFolder(tmp_path / "run").checkpoints
    assert [path.name for path in checkpoints.paths()] == ["step-00000003.safetensors"]
    summary = train(small, tmp_path / "run", quiet=True)
    assert summary is not None
    assert not (tmp_path / "run" / "checkpoint").exists()
