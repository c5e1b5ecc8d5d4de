import numpy as np
import pytest
import torch
from torch import nn

from sleepconv.brain.activations import Preparation, activations, comparable_layers, find_layers
from sleepconv.models import resnet18, resnet20
from sleepconv.nn import to_locally_connected

IMAGES = np.random.default_rng(0).normal(size=(10, 3, 8, 8)).astype(np.float32)


class StoppedError(Exception):
    pass


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 2))


def test_answers_are_those_of_a_forward_pass_whatever_the_batches():
    model = network().eval()
    answers = activations(model, IMAGES, ["2", "4"], batch_size=3)
    with torch.no_grad():
        expected = model[:3](torch.from_numpy(IMAGES)).flatten(1)
    np.testing.assert_allclose(answers["2"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(answers["4"], model(torch.from_numpy(IMAGES)).detach(), rtol=1e-4, atol=1e-5)


def test_answers_without_room_on_the_disk_are_one_error_and_leave_no_file(tmp_path, limit_files):
    limit_files(4000)
    with pytest.raises(
        OSError, match=r"cannot write the activations of layer '0' \(5,760 bytes\) to .*; free some space"
    ):
        activations(network(), IMAGES, ["4", "0"], cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_operation_in_place_does_not_change_what_was_recorded_before_it():
    assert activations(network(), IMAGES, ["1"])["1"].min() < 0


def test_the_mode_of_every_module_and_its_statistics_are_as_before():
    model = network().train()
    model[0].eval()
    before = model[1].running_mean.clone()
    activations(model, IMAGES, ["2"])
    assert model.training
    assert not model[0].training
    assert torch.equal(model[1].running_mean, before)
    assert not any(module._forward_hooks for module in model.modules())


def test_an_interrupted_call_continues_after_its_last_whole_batch(tmp_path):
    model, seen = network(), []

    def prepare(batch: np.ndarray, stop_at: int | None = None) -> torch.Tensor:
        seen.append(len(batch))
        if len(seen) == stop_at:
            raise StoppedError
        return torch.from_numpy(batch)

    # The first call of `prepare` names the cache.
    with pytest.raises(StoppedError):
        activations(model, IMAGES, ["2"], prepare=lambda b: prepare(b, stop_at=4), batch_size=3, cache=tmp_path)
    seen.clear()
    resumed = activations(model, IMAGES, ["2"], prepare=prepare, batch_size=3, cache=tmp_path)
    assert sum(seen[1:]) == len(IMAGES) - 6
    np.testing.assert_array_equal(resumed["2"], activations(model, IMAGES, ["2"], batch_size=3)["2"])


def test_a_cache_is_not_taken_for_that_of_other_weights(tmp_path):
    first, second = (activations(network(), IMAGES, ["2"], cache=tmp_path)["2"] for _ in range(2))
    assert not np.array_equal(first, second)


def test_a_damaged_cache_is_made_again(tmp_path):
    model = network()
    whole = np.array(activations(model, IMAGES, ["2"], cache=tmp_path)["2"])
    next(tmp_path.rglob("2.npy")).write_bytes(b"no array")
    np.testing.assert_array_equal(activations(model, IMAGES, ["2"], cache=tmp_path)["2"], whole)


def test_cached_answers_stay_in_files(tmp_path):
    assert isinstance(activations(network(), IMAGES, ["2"], cache=tmp_path)["2"], np.memmap)


def test_an_unknown_layer_is_refused_with_the_nearest_names():
    with pytest.raises(ValueError, match=r"no layer 'stages.0.O'; did you mean 'stages"):
        activations(resnet20(), IMAGES, ["stages.0.O"])
    with pytest.raises(ValueError, match=r"no layer 'ResidualBlok'; did you mean 'ResidualBlock'"):
        activations(resnet20(), IMAGES, ["ResidualBlok"])


def test_a_layer_that_does_not_run_is_named():
    model = network()
    model.add_module("idle", nn.Identity())
    model.forward = lambda x: model[:5](x)
    with pytest.raises(ValueError, match="'idle' did not run"):
        activations(model, IMAGES, ["idle"])


def test_no_image_is_an_error():
    with pytest.raises(ValueError, match="got 0 images"):
        activations(network(), IMAGES[:0], ["2"])


def test_blocks_are_compared_and_the_readout_is_not():
    for model in (resnet20(), to_locally_connected(resnet20(), torch.zeros(1, 3, 8, 8))):
        blocks = [f"stages.{stage}.{block}" for stage in range(3) for block in range(3)]
        assert comparable_layers(model) == ["relu", *blocks, "pool"]
    assert comparable_layers(resnet18())[:3] == ["relu", "maxpool", "stages.0.0"]
    assert comparable_layers(network()) == ["2"]


def test_the_name_of_a_class_stands_for_all_its_layers_such_as_every_relu_of_every_block():
    conv, images = resnet20().eval(), torch.randn(2, 3, 8, 8)
    names = ["relu", *(f"stages.{stage}.{block}.relu{n}" for stage in range(3) for block in range(3) for n in (1, 2))]
    assert list(find_layers(conv, ["ReLU"])) == names
    recorded = activations(to_locally_connected(conv, images), images, ["ReLU", "stages.2.2"])
    assert list(recorded) == [*names, "stages.2.2"]
    np.testing.assert_array_equal(recorded["stages.2.2.relu2"], recorded["stages.2.2"])
    assert all((rows >= 0).all() for rows in recorded.values())
    assert not np.array_equal(recorded["stages.0.0.relu1"], recorded["stages.0.0.relu2"])


def test_tensors_give_what_arrays_give_in_memory_and_in_a_cache(tmp_path):
    model, images = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(5, 4)
    expected = activations(model, images.numpy(), ["1"])["1"]
    np.testing.assert_array_equal(activations(model, images, ["1"], batch_size=2)["1"], expected)
    np.testing.assert_array_equal(activations(model, images, ["1"], cache=tmp_path)["1"], expected)
    np.testing.assert_array_equal(activations(model, images, ["1"], cache=tmp_path)["1"], expected)
    prepare = Preparation((3, 4, 4), mean=(127.5,) * 3, std=(60.0,) * 3)
    pixels = torch.randint(0, 256, (2, 6, 6, 3), dtype=torch.uint8)
    assert torch.equal(prepare(pixels), prepare(pixels.numpy()))


def test_images_that_are_neither_arrays_nor_tensors_are_refused():
    with pytest.raises(TypeError, match="an array or a tensor, got list"):
        activations(nn.ReLU(), [1.0], ["0"])
