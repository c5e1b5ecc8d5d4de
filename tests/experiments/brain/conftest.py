from pathlib import Path

import numpy as np
import pytest

from sleepconv.brain import Dissimilarities, LabelCounts, Recording, dissimilarity
from sleepconv.experiments.runs import Run, RunFolder
from sleepconv.experiments.training import build_network
from sleepconv.experiments.training.checkpoints import write_tensors
from sleepconv.sleep import compact_state

IMAGES = 80


@pytest.fixture(autouse=True)
def _no_data_of_the_user(tmp_path, monkeypatch) -> None:
    """Whether CIFAR-10 is on this machine makes no difference."""
    monkeypatch.setenv("SLEEPCONV_DATA", str(tmp_path / "data"))


def _write_run(path: Path, run: Run, input_size: tuple[int, int, int]) -> None:
    """Write what `sleepconv train` leaves of a finished run, with random weights."""
    folder = RunFolder(path)
    path.mkdir(parents=True)
    folder.write("recipe.json", run.as_json())
    model = build_network(run.changed(seed=7), input_size, 10)
    write_tensors(path / "model.safetensors", compact_state(model), {"input_size": input_size, "classes": 10})
    numbers = dict.fromkeys(["top1", "top5", "seconds", "seconds_per_epoch"], 10.0)
    folder.write_json("summary.json", {"set": "test", **numbers})


@pytest.fixture
def runs(tmp_path) -> Path:
    """A folder with one finished convolutional run."""
    run = Run(name="small", dataset="cifar10", connectivity="convolutional", learning_rate=1e-2)
    _write_run(tmp_path / "runs" / "small", run, (3, 32, 32))
    return tmp_path / "runs"


@pytest.fixture
def miniature_runs(tmp_path) -> Path:
    """A folder with one finished run on CIFAR-10 at 16×16."""
    run = Run("mini", "cifar10-16x16", network="resnet8", connectivity="local", learning_rate=1e-3)
    _write_run(tmp_path / "runs" / "mini", run, (3, 16, 16))
    return tmp_path / "runs"


@pytest.fixture
def recordings(tmp_path) -> Path:
    """A folder with a recording that pixels explain, dissimilarities and label counts."""
    folder, random = tmp_path / "recordings", np.random.default_rng(0)
    folder.mkdir()
    patterns = random.normal(size=(4, 192))
    images = np.clip(127.5 + 25 * random.normal(size=(IMAGES, 4)) @ patterns, 0, 255).astype(np.uint8)
    images = images.reshape(IMAGES, 8, 8, 3)
    pixels = images.reshape(IMAGES, -1) - 127.5
    signal = pixels @ patterns.T @ random.normal(size=(4, 5)) / 10_000
    repeats = signal[:, :, None] + 0.2 * random.normal(size=(IMAGES, 5, 4))
    groups = np.arange(IMAGES) // 8
    Recording("toy-v4", "V4", images, repeats, groups, neuron_names=list("abcde")).save(folder / "v4.npz")
    people = np.stack([dissimilarity(pixels + 40 * random.normal(size=pixels.shape)) for _ in range(3)])
    Dissimilarities("toy-it", "IT", images, people).save(folder / "it.npz")
    majority = 40 * np.eye(10, dtype=int)[np.arange(20) % 10]
    LabelCounts("labels", random.integers(1, 9, (20, 10)) + majority).save(folder / "labels.npz")
    return folder


@pytest.fixture
def small_cifar10(tmp_path) -> Path:
    """CIFAR-10's files with twenty test images."""
    folder, random = tmp_path / "data" / "cifar-10-batches-bin", np.random.default_rng(1)
    folder.mkdir(parents=True)
    records = random.integers(0, 256, (20, 3073), dtype=np.uint8)
    records[:, 0] %= 10
    records.tofile(folder / "test_batch.bin")
    (folder / "batches.meta.txt").write_text("\n".join(f"class{number}" for number in range(10)))
    return tmp_path / "data"
