"""A run that takes seconds."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sleepconv.experiments.paper import RECIPES
from sleepconv.experiments.runs import Run, run_path


@pytest.fixture
def small_run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Eight epochs on the embedded digits, each with a checkpoint; also a recipe of the name "small"."""
    run = Run("small", "digits", "convolutional", 1e-3, network="three_layers", epochs=8, batch_size=512)
    monkeypatch.setitem(RECIPES, "small", run)
    return run


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def wait_for() -> Callable[..., None]:
    return _wait_for


@pytest.fixture
def wait_for_a_checkpoint() -> Callable[[Path, Run], None]:
    def wait(into: Path, run: Run) -> None:
        _wait_for(lambda: list((run_path(into, run) / "checkpoint").glob("*.safetensors")))

    return wait


@pytest.fixture
def children() -> Callable[[int | str], list[int]]:
    """Return the processes that a process has started."""

    def find(process: int | str) -> list[int]:
        lists = Path(f"/proc/{process}/task").glob("*/children")
        return [int(child) for file in lists for child in file.read_text().split()]

    return find


def _wait_for(condition: Callable[[], object], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
