import os
from pathlib import Path

import pytest
import torch

try:
    import resource
except ImportError:  # Windows
    resource = None

from sleepconv.training import CorruptCheckpointError
from sleepconv.training.checkpoints import Checkpoints, read_tensors, write_tensors


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": torch.arange(1000.0), "b": torch.tensor(3)}, {"step": 7})
    return path


def test_what_is_written_is_read_back(file: Path):
    tensors, facts = read_tensors(file)
    assert torch.equal(tensors["a"], torch.arange(1000.0))
    assert tensors["b"] == 3
    assert facts == {"step": 7}


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_a_file_is_as_readable_as_any_other(file: Path):
    (file.parent / "other").touch()
    assert file.stat().st_mode == (file.parent / "other").stat().st_mode


@pytest.mark.parametrize("keep", [0, 4, 20, 200, 2000])
def test_a_file_that_was_cut_short_is_refused(file: Path, keep: int):
    os.truncate(file, keep)
    with pytest.raises(CorruptCheckpointError, match="damaged"):
        read_tensors(file)


def test_a_flipped_bit_is_noticed(file: Path):
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptCheckpointError, match="checksum"):
        read_tensors(file)


@pytest.mark.parametrize("bit", [1, 2, 4, 8])
def test_a_flipped_bit_anywhere_before_the_tensors_is_noticed(file: Path, bit: int):
    whole = file.read_bytes()
    for place in range(len(whole) - 4008):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        try:
            tensors, facts = read_tensors(file)
        except CorruptCheckpointError:
            continue
        assert torch.equal(tensors["a"], torch.arange(1000.0)), place
        assert (tensors["b"], tensors["b"].dtype, facts) == (3, torch.int64, {"step": 7}), place


def test_a_pickle_is_refused_not_executed(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    torch.save({"a": torch.zeros(1)}, path)
    with pytest.raises(CorruptCheckpointError):
        read_tensors(path)


@pytest.mark.skipif(resource is None, reason="needs POSIX limits")
def test_a_disk_that_fills_up_leaves_the_old_file(file: Path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(OSError, match="could not be written"):
            write_tensors(file, {"a": torch.zeros(100_000)}, {"step": 8})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read_tensors(file)[1] == {"step": 7}
    assert os.listdir(file.parent) == [file.name]


def test_drafts_of_a_killed_writer_are_removed(tmp_path: Path):
    (tmp_path / ".draft").mkdir()
    (tmp_path / ".draft" / "step-00000001.safetensors").write_bytes(b"half")
    Checkpoints(tmp_path).write(2, {"x": torch.zeros(1)}, {})
    assert os.listdir(tmp_path) == ["step-00000002.safetensors"]


def test_damaged_checkpoints_are_passed_over_with_their_error(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.write(step, {"x": torch.tensor([float(step)])}, {"step": step})
    os.truncate(checkpoints.paths()[0], 30)
    (_, nothing, error), (_, tensors, facts) = checkpoints.readable()
    assert nothing is None
    assert isinstance(error, CorruptCheckpointError)
    assert tensors["x"] == 1.0
    assert facts == {"step": 1}


def test_an_unwritable_folder_is_an_error_of_the_system(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        Checkpoints(tmp_path / "file").write(1, {"x": torch.zeros(1)}, {})
