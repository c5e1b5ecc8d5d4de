import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image

from sleepconv.experiments.data import CorruptImageError, tiny_imagenet
from sleepconv.files import atomic_folder


def test_training_images_are_decoded_with_the_label_of_their_folder(small_tiny_imagenet, data_dir):
    images = tiny_imagenet(data_dir, complete=False)
    assert images.pixels.shape == (30, 3, 64, 64)
    assert images.labels.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    assert images.classes == ("goldfish", "frog", "acorn")
    first = (small_tiny_imagenet / "train" / "n01" / "images" / "n01_0.JPEG").read_bytes()
    expected = np.array(Image.open(io.BytesIO(first)))
    assert torch.equal(images.pixels[0], torch.from_numpy(expected).permute(2, 0, 1))


def test_unsorted_validation_images_get_their_labels_from_the_annotations(small_tiny_imagenet, data_dir):
    images = tiny_imagenet(data_dir, train=False, complete=False)
    assert images.labels.tolist() == [1, 0, 2, 2, 0, 1]
    grey = images.pixels[3]
    assert torch.equal(grey[0], grey[1])


def test_the_second_reading_maps_the_cache_and_decodes_nothing(small_tiny_imagenet, data_dir):
    first = tiny_imagenet(data_dir, complete=False)
    for path in small_tiny_imagenet.glob("train/*/images/*.JPEG"):
        path.write_bytes(b"no longer an image")
    again = tiny_imagenet(data_dir, complete=False)
    assert torch.equal(first.pixels, again.pixels)


def test_a_cache_of_other_files_is_not_used(small_tiny_imagenet, data_dir):
    tiny_imagenet(data_dir, complete=False)
    (small_tiny_imagenet / "train" / "n02" / "images" / "n02_9.JPEG").unlink()
    assert len(tiny_imagenet(data_dir, complete=False)) == 29


def test_a_val_folder_sorted_into_classes_is_refused(small_tiny_imagenet, data_dir):
    images = small_tiny_imagenet / "val" / "images"
    images.rename(small_tiny_imagenet / "val" / "n01")
    with pytest.raises(FileNotFoundError, match="if val/ was sorted into class folders"):
        tiny_imagenet(data_dir, train=False, complete=False)


def test_missing_annotations_are_an_error_not_a_one_class_test_set(small_tiny_imagenet, data_dir):
    (small_tiny_imagenet / "val" / "val_annotations.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"val_annotations\.txt is missing"):
        tiny_imagenet(data_dir, train=False, complete=False)


@pytest.mark.parametrize("line", ["val_0.JPEG\tn99\t0", "val_0.JPEG", "../../secret\tn01\t0"])
def test_an_annotation_of_no_known_class_or_file_is_named(small_tiny_imagenet, data_dir, line):
    (small_tiny_imagenet / "val" / "val_annotations.txt").write_text(line + "\n")
    with pytest.raises(ValueError, match=r"line 1 of .* does not give a file and a known class"):
        tiny_imagenet(data_dir, train=False, complete=False)


def test_a_missing_class_folder_is_named(small_tiny_imagenet, data_dir):
    (small_tiny_imagenet / "train" / "n02").rename(small_tiny_imagenet / "elsewhere")
    with pytest.raises(FileNotFoundError, match=r"n02.* has no images, but wnids\.txt lists the class n02"):
        tiny_imagenet(data_dir, complete=False)


def test_fewer_classes_than_official_are_refused(small_tiny_imagenet, data_dir):
    with pytest.raises(ValueError, match="lists 3 classes, but TinyImageNet has 200"):
        tiny_imagenet(data_dir)


def test_a_corrupt_image_is_named_and_leaves_no_cache(small_tiny_imagenet, data_dir):
    bad = small_tiny_imagenet / "train" / "n02" / "images" / "n02_4.JPEG"
    bad.write_bytes(bad.read_bytes()[:200])
    with pytest.raises(CorruptImageError, match=r"n02_4\.JPEG is not a readable image"):
        tiny_imagenet(data_dir, complete=False)
    assert list((data_dir / "computed").iterdir()) == []


def test_an_image_of_another_size_is_named(small_tiny_imagenet, data_dir, make_jpeg):
    bad = small_tiny_imagenet / "train" / "n02" / "images" / "n02_4.JPEG"
    bad.write_bytes(make_jpeg(32, 64))
    with pytest.raises(CorruptImageError, match=r"n02_4\.JPEG has 32×64 pixels, not 64×64"):
        tiny_imagenet(data_dir, complete=False)


def test_corrupt_images_are_skipped_as_told_and_counted_each_time(small_tiny_imagenet, data_dir):
    images = small_tiny_imagenet / "train" / "n02" / "images"
    (images / "n02_4.JPEG").write_bytes(b"")
    (images / "n02_7.JPEG").write_bytes(b"garbage")
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"2 corrupt images were left out: .*n02_4\.JPEG, .*n02_7\.JPEG"):
            kept = tiny_imagenet(data_dir, complete=False, on_corrupt="skip")
        assert kept.labels.bincount().tolist() == [10, 8, 10]


def test_an_unwritable_cache_says_what_to_do(small_tiny_imagenet, data_dir):
    (data_dir / "computed").write_text("a file where the cache should be")
    with pytest.raises(OSError, match=r"cannot write to .*computed.*SLEEPCONV_CACHE"):
        tiny_imagenet(data_dir, complete=False)


def test_the_cache_can_lie_elsewhere(small_tiny_imagenet, data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("SLEEPCONV_CACHE", str(tmp_path / "fast"))
    tiny_imagenet(data_dir, complete=False)
    assert len(list((tmp_path / "fast").iterdir())) == 1
    assert not (data_dir / "computed").exists()


def test_processes_that_decode_at_the_same_time_read_the_same_cache(small_tiny_imagenet, data_dir):
    """What one has finished is never moved away under the hands of another that reads it."""
    with ThreadPoolExecutor(4) as pool:
        read = list(pool.map(lambda _: tiny_imagenet(data_dir, complete=False), range(4)))
    assert all(torch.equal(images.pixels, read[0].pixels) for images in read)
    assert len(list((data_dir / "computed").iterdir())) == 1


def test_a_folder_that_another_process_has_made_meanwhile_stays(tmp_path):
    with atomic_folder(tmp_path / "cache", keep_existing=True) as mine:
        (mine / "mine").touch()
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "theirs").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["cache", "theirs"]
