"""A run that takes a second."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from sleepconv.experiments.runs import Run, RunFolder
from sleepconv.experiments.runs.folder import WEIGHTS
from sleepconv.experiments.training import train

SMALL = Run(
    name="small",
    dataset="digits",
    network="three_layers",
    connectivity="local",
    learning_rate=3e-3,
    sleep_every=3,
    padding=2,
    epochs=3,
    batch_size=512,
)


@contextmanager
def one_thread() -> Iterator[None]:
    """The order of sums, and so the last bit, depends on the number of threads; the processes started here have one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="session")
def small() -> Run:
    return SMALL


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run, trained to its end without a stop; not to be changed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with one_thread():
        train(SMALL, folder, quiet=True)
    return folder


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / WEIGHTS)


def timeless(folder: Path) -> list[dict[str, Any]]:
    """The metrics without their times."""
    return [{k: v for k, v in report.items() if "seconds" not in k} for report in RunFolder(folder).metrics()]


@pytest.fixture
def assert_same_end() -> Callable[[Path, Path], None]:
    return _assert_same_end


def _assert_same_end(one: Path, other: Path) -> None:
    """The same weights, bit for bit, the same metrics and the same summary but for the times."""
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.numpy().tobytes() == second[name].numpy().tobytes(), name
    assert timeless(one) == timeless(other)
    endings = [RunFolder(folder).summary() for folder in (one, other)]
    assert endings[0] is not None
    assert endings[1] is not None
    assert {k: v for k, v in endings[0].items() if "seconds" not in k} == {
        k: v for k, v in endings[1].items() if "seconds" not in k
    }
