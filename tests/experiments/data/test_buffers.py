import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from sleepconv.experiments.data.translations import Buffers

# What a user may keep of an array that was taken.
KEPT: dict[str, Callable[[np.ndarray], object]] = {
    "the array": lambda array: array,
    "a view": lambda array: array[1:],
    "a view of a view": lambda array: array[1:].reshape(-1)[:3],
    "a tensor": torch.from_numpy,
    "a view of a tensor": lambda array: torch.from_numpy(array)[1:].view(-1),
    "an array on a tensor": lambda array: torch.from_numpy(array)[1:].numpy(),
}


@pytest.mark.parametrize("fewer", [0, 1], ids=["counts of before Python 3.14", "counts from 3.14 on"])
@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT)
def test_memory_in_use_is_not_given_out_however_python_counts_references(keep, fewer, monkeypatch):
    counted = sys.getrefcount
    monkeypatch.setattr(sys, "getrefcount", lambda value: counted(value) - 1 - fewer)  # the lambda's is one more
    buffers = Buffers()
    kept = keep(buffers.take((4, 10)))
    for _ in range(7):
        assert not np.shares_memory(buffers.take((4, 10)), np.asarray(kept))


@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT)
def test_memory_that_nobody_uses_is_given_out_again(keep):
    buffers = Buffers()
    array = buffers.take((4, 10))
    address = array.ctypes.data
    kept = keep(array)
    del array, kept
    assert buffers.take((3, 10)).ctypes.data == address


def test_memory_that_is_too_small_is_not_given_out():
    buffers = Buffers()
    buffers.take((2, 10))
    buffers.take((3, 10))[:] = 1


def test_a_process_without_images_in_a_batch_takes_an_empty_array():
    assert Buffers().take((0, 3, 4, 4)).shape == (0, 3, 4, 4)
