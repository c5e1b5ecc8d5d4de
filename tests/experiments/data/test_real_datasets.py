"""Against the real datasets, where SLEEPCONV_DATA (or the default folder) holds them."""

import pytest
import torch

from sleepconv.experiments.brain.candidates import preparation_for
from sleepconv.experiments.data import (
    DATASETS,
    cifar10,
    cifar100,
    data_directory,
    fashion_mnist,
    load_task,
    measure,
    tiny_imagenet,
)
from sleepconv.experiments.data.inspection import check


@pytest.fixture
def real_data():
    return data_directory()


def need(name: str, data_dir) -> None:
    folder = DATASETS[name].directory(data_dir)
    if not DATASETS[name].is_complete(folder):
        pytest.skip(f"the real {name} is not in {folder}; `sleepconv data get {name}` brings it")


@pytest.fixture
def real_cifar10(real_data):
    need("cifar10", real_data)
    return real_data


def test_cifar10_has_5000_training_and_1000_test_images_of_each_class(real_cifar10):
    train, test = cifar10(real_cifar10), cifar10(real_cifar10, train=False)
    assert train.labels.bincount().tolist() == [5000] * 10
    assert test.labels.bincount().tolist() == [1000] * 10
    assert train.classes[0] == "airplane"


def test_cifar10_has_the_known_channel_statistics(real_cifar10):
    found = measure(cifar10(real_cifar10))
    assert [mean / 255 for mean in found.mean] == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    assert [std / 255 for std in found.std] == pytest.approx([0.2470, 0.2435, 0.2616], abs=5e-5)


@pytest.mark.parametrize("name", ["cifar10", "cifar10-16x16"])
def test_brain_fits_prepare_images_with_the_statistics_of_the_training_images(name, real_cifar10):
    images = DATASETS[name].read(real_cifar10)
    found, used = measure(images), preparation_for(name, (3, *images.image_size))
    assert found.mean == pytest.approx(used.mean, rel=1e-12)
    assert found.std == pytest.approx(used.std, rel=1e-12)


def test_cifar10_has_the_official_checksums(real_cifar10):
    report = check(DATASETS["cifar10"], real_cifar10)
    assert report.usable
    assert report.official, report.lines


def test_cifar10_is_tuned_on_45000_and_5000_images(real_cifar10, tmp_path, monkeypatch):
    monkeypatch.setenv("SLEEPCONV_CACHE", str(tmp_path))
    task = load_task("cifar10", data_dir=real_cifar10, padding=4, tuning=True)
    assert (len(task.train), len(task.evaluation)) == (45_000, 5_000)


def test_cifar100_has_500_training_and_100_test_images_of_each_class(real_data):
    need("cifar100", real_data)
    assert cifar100(real_data).labels.bincount().tolist() == [500] * 100
    assert cifar100(real_data, train=False).labels.bincount().tolist() == [100] * 100
    assert check(DATASETS["cifar100"], real_data).usable


def test_tiny_imagenet_has_500_training_and_50_test_images_of_each_class(real_data):
    if not (real_data / "tiny-imagenet-200" / "wnids.txt").is_file():
        pytest.skip(f"the real TinyImageNet is not in {real_data}; `sleepconv data get tiny-imagenet` brings it")
    assert tiny_imagenet(real_data).labels.bincount().tolist() == [500] * 200
    test = tiny_imagenet(real_data, train=False)
    assert test.labels.bincount().tolist() == [50] * 200
    assert not torch.equal(test.labels, test.labels.sort().values)


def test_fashion_mnist_has_6000_training_and_1000_test_images_of_each_class(real_data):
    need("fashion-mnist", real_data)
    assert fashion_mnist(real_data).labels.bincount().tolist() == [6000] * 10
    assert fashion_mnist(real_data, train=False).labels.bincount().tolist() == [1000] * 10
    report = check(DATASETS["fashion-mnist"], real_data)
    assert report.official, report.lines
