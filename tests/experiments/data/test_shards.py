import shutil
import tarfile

import numpy as np
import pytest
import torch

from sleepconv.experiments.data import (
    Batches,
    Decoders,
    EncodedSource,
    Shards,
    imagenet_folders,
    load_task,
    write_shards,
)
from sleepconv.experiments.data.shards import SHARDS_MIXED


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


@pytest.fixture
def shards_only(files, small_imagenet, data_dir):
    """ImageNet as shards of five images alone; two of the three training shards are full."""
    test = imagenet_folders(data_dir, train=False, complete=False)
    write_shards({"train": files, "val": test}, data_dir / "imagenet-shards", images_per_shard=5)
    small_imagenet.rename(data_dir / "away")
    return data_dir / "imagenet-shards"


@pytest.mark.parametrize(("part", "number", "of"), [("train", 1, 3), ("train", 2, 3), ("val", 0, 2)])
def test_a_missing_shard_is_named(shards_only, data_dir, part, number, of):
    (shards_only / f"{part}-{number:06d}.tar").unlink()
    expected = rf"lacks 1 of the {of} {part} shards .* first {part}-00000{number}\.tar"
    with pytest.raises(FileNotFoundError, match=expected):
        load_task("imagenet", data_dir=data_dir, complete=False)


def test_a_folder_without_shards_of_a_part_is_named(shards_only, data_dir):
    for path in shards_only.glob("val-*.tar"):
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"imagenet-shards has no shard val-\*\.tar"):
        load_task("imagenet", data_dir=data_dir, complete=False)


def test_a_shard_with_other_images_than_listed_is_named(shards_only, data_dir):
    shutil.copy(shards_only / "train-000000.tar", shards_only / "train-000002.tar")
    with pytest.raises(ValueError, match=r"train-000002\.tar has 5 images, but shards\.json lists 2"):
        load_task("imagenet", data_dir=data_dir, complete=False)


def test_a_shard_that_is_not_listed_is_named(shards_only, data_dir):
    shutil.copy(shards_only / "train-000000.tar", shards_only / "train-000003.tar")
    with pytest.raises(ValueError, match=r"train-000003\.tar has 5 images, but shards\.json lists no such shard"):
        load_task("imagenet", data_dir=data_dir, complete=False)


def test_shards_without_a_list_must_hold_all_of_imagenet(shards_only, data_dir):
    (shards_only / "shards.json").unlink()
    with pytest.raises(ValueError, match=r"3 shards .*train-\*\.tar hold 12 images, but ImageNet has 1,281,167"):
        load_task("imagenet", data_dir=data_dir)
    assert len(load_task("imagenet", data_dir=data_dir, complete=False).train) == 12


def test_a_damaged_list_is_named(shards_only, data_dir):
    (shards_only / "shards.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"shards\.json does not say how many images"):
        load_task("imagenet", data_dir=data_dir, complete=False)


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
