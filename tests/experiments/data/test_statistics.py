import json

import pytest
import torch

from sleepconv.experiments.data import ChannelStatistics, Images, measure
from sleepconv.experiments.data.tasks import measured_once


def some_images(count: int = 60) -> Images:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 3, 5, 7), dtype=torch.uint8, generator=generator)
    return Images(pixels, torch.zeros(count, dtype=torch.int64), ("only",))


def test_measured_statistics_are_mean_and_deviation_of_each_channel():
    images = some_images()
    values = images.pixels.double().transpose(0, 1).flatten(1)
    found = measure(images)
    assert found.mean == pytest.approx(values.mean(dim=1).tolist())
    assert found.std == pytest.approx(values.std(dim=1, correction=0).tolist())


def test_only_the_training_split_is_measured():
    images = some_images()
    train, _ = images.split(30)
    values = images.pixels[train.rows].double().transpose(0, 1).flatten(1)
    assert measure(train).mean == pytest.approx(values.mean(dim=1).tolist())


def test_statistics_are_computed_once_and_again_when_the_data_change(tmp_path):
    cache = tmp_path / "computed" / "statistics.json"
    found = measured_once(some_images(), cache, "first")
    altered = json.loads(cache.read_text()) | {"mean": [1.0, 2.0, 3.0]}
    cache.write_text(json.dumps(altered))
    assert measured_once(some_images(), cache, "first").mean == (1.0, 2.0, 3.0)
    assert measured_once(some_images(), cache, "second") == found


@pytest.mark.parametrize("content", ["", "{", "[]", '{"fingerprint": "same", "mean": [1]}'])
def test_a_damaged_cache_is_computed_again(tmp_path, content):
    cache = tmp_path / "statistics.json"
    cache.write_text(content)
    assert measured_once(some_images(), cache, "same") == measure(some_images())


def test_an_unwritable_cache_is_warned_of_and_the_statistics_are_right(tmp_path):
    (tmp_path / "computed").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="cannot write to"):
        found = measured_once(some_images(), tmp_path / "computed" / "statistics.json", "x")
    assert found == measure(some_images())


def test_a_constant_channel_is_refused():
    images = Images(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64), ("only",))
    with pytest.raises(ValueError, match="is constant"):
        measure(images)
    with pytest.raises(ValueError, match="deviation above 0"):
        ChannelStatistics((0.0,), (0.0,))
