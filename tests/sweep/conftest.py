"""A run that takes seconds."""

import pytest

from sleepconv.training import Run


@pytest.fixture
def small_run() -> Run:
    """Eight epochs on the embedded digits, each with a checkpoint."""
    return Run("small", "digits", "convolutional", 1e-3, network="three_layers", epochs=8, batch_size=512)
