import errno
import os
from pathlib import Path

import pytest
import torch

try:
    import resource
except ImportError:  # Windows
    resource = None

from sleepconv.experiments.training import CorruptCheckpointError
from sleepconv.experiments.training.checkpoints import Checkpoints, read_tensors, write_tensors


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


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    """After steps 1 and 2, in a folder."""
    checkpoints = Checkpoints(tmp_path / "checkpoint")
    for step in (1, 2):
        checkpoints.write(step, {"x": torch.tensor([float(step)])}, {"step": step})
    return checkpoints


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(os.listdir(checkpoints.folder))


def test_a_damaged_checkpoint_is_passed_over_set_aside_and_named(checkpoints: Checkpoints):
    said: list[str] = []
    os.truncate(checkpoints.paths()[0], 30)
    _, tensors, facts = checkpoints.newest(said.append)
    assert (tensors["x"], facts) == (1.0, {"step": 1})
    assert names(checkpoints) == ["step-00000001.safetensors", "step-00000002.damaged"]
    (line,) = said
    assert "step-00000002.safetensors is damaged" in line
    assert line.endswith("it was set aside as step-00000002.damaged")


def test_what_was_set_aside_outlives_the_run(checkpoints: Checkpoints):
    os.truncate(checkpoints.paths()[0], 30)
    checkpoints.newest(print)
    checkpoints.clear()
    assert names(checkpoints) == ["step-00000002.damaged"]


def test_without_damage_nothing_is_left_at_the_end(checkpoints: Checkpoints):
    checkpoints.clear()
    assert not checkpoints.folder.exists()


@pytest.mark.parametrize("target", ["/proc/self/mem", "step-00000002.safetensors"])
def test_a_checkpoint_that_cannot_be_read_is_not_taken_for_a_damaged_one(checkpoints: Checkpoints, target: str):
    newest = checkpoints.paths()[0]
    newest.unlink()
    newest.symlink_to(target)  # reading it is an input/output error, or a link that leads to itself
    if target.startswith("/proc") and not newest.exists():
        pytest.skip("needs Linux")
    with pytest.raises(OSError, match="step-00000002.safetensors") as raised:
        checkpoints.newest(print)
    assert raised.value.errno in (errno.EIO, errno.ELOOP)
    assert names(checkpoints) == ["step-00000001.safetensors", "step-00000002.safetensors"]


def test_a_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one(tmp_path: Path):
    (tmp_path / "checkpoint").symlink_to("checkpoint")
    with pytest.raises(OSError, match="checkpoint"):
        Checkpoints(tmp_path / "checkpoint").paths()


def test_an_unwritable_folder_is_an_error_of_the_system(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        Checkpoints(tmp_path / "file").write(1, {"x": torch.zeros(1)}, {})
