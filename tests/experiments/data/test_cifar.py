import numpy as np
import pytest
import torch

from sleepconv.experiments.data import cifar10, cifar100


def test_records_become_labels_and_channel_planes(small_cifar10, data_dir):
    raw = np.frombuffer((small_cifar10 / "data_batch_2.bin").read_bytes(), np.uint8).reshape(20, 3073)
    images = cifar10(data_dir, complete=False)
    assert len(images) == 100
    assert images.pixels.shape == (100, 3, 32, 32)
    assert images.labels[20:40].tolist() == raw[:, 0].tolist()
    assert torch.equal(images.pixels[23, 1, 5], torch.from_numpy(raw[3, 1 + 1024 + 5 * 32 :][:32].copy()))
    assert images.classes[3] == "class 3"


def test_cifar100_takes_the_fine_label(small_cifar100, data_dir):
    images = cifar100(data_dir, complete=False)
    assert images.labels.tolist() == [i % 100 for i in range(200)]
    assert len(cifar100(data_dir, train=False, complete=False)) == 100


def test_split_by_seed_is_disjoint_complete_and_repeatable(small_cifar10, data_dir):
    images = cifar10(data_dir, complete=False)
    train, held = images.split(10, seed=3)
    assert sorted([*train.rows.tolist(), *held.rows.tolist()]) == list(range(100))
    assert held.rows.tolist() == images.split(10, seed=3)[1].rows.tolist()
    assert held.rows.tolist() != images.split(10, seed=4)[1].rows.tolist()
    assert train.pixels.data_ptr() == images.pixels.data_ptr()


@pytest.mark.parametrize("held_out", [-1, 100, 1000])
def test_holding_out_all_or_more_is_refused(small_cifar10, data_dir, held_out):
    with pytest.raises(ValueError, match="cannot hold out"):
        cifar10(data_dir, complete=False).split(held_out)


def test_a_file_cut_at_a_record_is_refused_as_truncated(small_cifar10, data_dir):
    with pytest.raises(ValueError, match=r"data_batch_1\.bin has 61,460 bytes, but the official .* 30,730,000"):
        cifar10(data_dir)


def test_a_file_cut_within_a_record_is_refused_even_if_incomplete_is_allowed(small_cifar10, data_dir):
    path = small_cifar10 / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"test_batch\.bin .* truncated"):
        cifar10(data_dir, train=False, complete=False)


def test_a_label_out_of_range_names_file_and_record(small_cifar10, data_dir):
    path = small_cifar10 / "data_batch_4.bin"
    content = bytearray(path.read_bytes())
    content[7 * 3073] = 10
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"record 7 of .*data_batch_4\.bin has label 10"):
        cifar10(data_dir, complete=False)


def test_a_missing_file_says_how_to_get_it(small_cifar10, data_dir):
    (small_cifar10 / "data_batch_5.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_5\.bin is missing; run `sleepconv data get cifar10`"):
        cifar10(data_dir, complete=False)


def test_a_wrong_number_of_class_names_is_refused(small_cifar10, data_dir):
    (small_cifar10 / "batches.meta.txt").write_text("cat\ndog\n")
    with pytest.raises(ValueError, match="names 2 classes, but CIFAR-10 has 10"):
        cifar10(data_dir, complete=False)
