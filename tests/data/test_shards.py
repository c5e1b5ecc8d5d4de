import tarfile

import numpy as np
import pytest
import torch

from sleepconv.data import Batches, Decoders, EncodedSource, Shards, imagenet_folders, load_task, write_shards
from sleepconv.data.shards import SHARDS_MIXED


@pytest.fixture
def files(small_imagenet, data_dir):
    return imagenet_folders(data_dir, complete=False)


def test_shards_hold_the_same_images_and_labels(files, tmp_path):
    assert write_shards({"train": files}, tmp_path / "shards", images_per_shard=5) == 3
    shards = Shards(list((tmp_path / "shards").glob("train-*.tar")))
    assert shards.classes == files.classes
    written = sorted((int(shards.labels[row]), shards.read(row)) for row in range(12))
    assert written == sorted((int(files.labels[row]), files.read(row)) for row in range(12))


def test_shards_are_plain_webdataset_tars(files, tmp_path):
    write_shards({"val": files}, tmp_path / "shards", images_per_shard=100)
    with tarfile.open(tmp_path / "shards" / "val-000000.tar") as tar:
        names = tar.getnames()
    assert len(names) == 24
    assert {name.split(".")[1] for name in names} == {"jpg", "cls"}


def test_an_epoch_visits_every_image_once_and_few_shards_at_a_time(files, tmp_path):
    write_shards({"train": files}, tmp_path / "shards", images_per_shard=1)
    shards = Shards(list((tmp_path / "shards").glob("train-*.tar")))
    order = shards.order(np.arange(12), np.random.default_rng(0))
    assert sorted(order) == list(range(12))
    many = Shards.__new__(Shards)
    many.paths, many.shard = [None] * 64, np.repeat(np.arange(64), 10)
    visited = many.shard[many.order(np.arange(640), np.random.default_rng(0))].reshape(-1, SHARDS_MIXED * 10)
    assert all(len(set(stretch)) == SHARDS_MIXED for stretch in visited)


def test_batches_from_shards_are_reproducible(files, tmp_path):
    write_shards({"train": files}, tmp_path / "shards", images_per_shard=4)
    paths = list((tmp_path / "shards").glob("train-*.tar"))
    first, again = (
        Batches(EncodedSource(Shards(paths), np.arange(12), train=True, decoders=Decoders(2)), batch_size=5)
        for _ in range(2)
    )
    assert torch.equal(first.batch(2, 1)[0], again.batch(2, 1)[0])


def test_the_index_is_remembered_until_a_shard_changes(files, tmp_path):
    write_shards({"train": files}, tmp_path / "shards", images_per_shard=6)
    paths = sorted((tmp_path / "shards").glob("train-*.tar"))
    for _ in range(2):
        assert len(Shards(paths, index_dir=tmp_path / "index").labels) == 12
    assert len(list((tmp_path / "index").iterdir())) == 1
    assert len(Shards(paths[:1], index_dir=tmp_path / "index").labels) == 6


def test_imagenet_is_found_as_shards_where_there_are_no_folders(files, small_imagenet, data_dir):
    test = imagenet_folders(data_dir, train=False, complete=False)
    write_shards({"train": files, "val": test}, data_dir / "imagenet-shards")
    small_imagenet.rename(data_dir / "away")
    task = load_task("imagenet", data_dir=data_dir, complete=False)
    assert (len(task.train), len(task.evaluation)) == (12, 6)


def test_a_truncated_shard_is_named(files, tmp_path):
    write_shards({"train": files}, tmp_path / "shards")
    path = tmp_path / "shards" / "train-000000.tar"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"train-000000\.tar is (not a whole|truncated)"):
        Shards([path])


def test_an_image_without_a_label_is_named(tmp_path):
    with tarfile.open(tmp_path / "train-0.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("a.jpg"))
    (tmp_path / "classes.txt").write_text("cat\n")
    with pytest.raises(ValueError, match=r"'a' lacks its image or its \.cls label"):
        Shards([tmp_path / "train-0.tar"])


def test_a_label_out_of_range_is_named(files, tmp_path):
    write_shards({"train": files}, tmp_path / "shards")
    with pytest.raises(ValueError, match="has label 1, but the 1 classes"):
        Shards(list((tmp_path / "shards").glob("*.tar")), classes=("only",))


def test_missing_class_names_and_missing_shards_are_errors(files, tmp_path):
    write_shards({"train": files}, tmp_path / "shards")
    (tmp_path / "shards" / "classes.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"classes\.txt is missing"):
        Shards(list((tmp_path / "shards").glob("*.tar")))
    with pytest.raises(FileNotFoundError, match="no tar shards"):
        Shards([])


def test_shards_never_replace_what_is_there(files, tmp_path):
    (tmp_path / "shards").mkdir()
    with pytest.raises(FileExistsError, match="already there"):
        write_shards({"train": files}, tmp_path / "shards")


def test_a_failure_while_writing_leaves_nothing(files, tmp_path, small_imagenet):
    (small_imagenet / "train" / "n02" / "n02_5.JPEG").unlink()
    with pytest.raises(FileNotFoundError):
        write_shards({"train": files}, tmp_path / "out" / "shards")
    assert list((tmp_path / "out").iterdir()) == []
