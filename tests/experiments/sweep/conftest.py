"""A run that takes seconds."""

from collections.abc import Iterator

import pytest
import torch

from sleepconv.experiments.runs import Run


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """What is carried out in this process changes them."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small_run() -> Run:
    """Eight epochs on the embedded digits, each with a checkpoint."""
    return Run("small", "digits", "convolutional", 1e-3, network="three_layers", epochs=8, batch_size=512)
