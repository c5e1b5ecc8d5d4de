"""Patterns that pass from layer to layer."""

import copy

import pytest
import torch
from torch import nn

import sleepconv
from sleepconv.functional import lateral_grids, weight_snr
from sleepconv.sleep import Hebbian


def test_layers_of_1x1_filters_follow_the_networks_period():
    model = sleepconv.to_locally_connected(
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 1)), torch.zeros(1, 3, 9, 9)
    )
    Hebbian(decay=1e-6, patterns="layer_by_layer", steps=300)(model)
    weight = model[2].weight.detach()
    within = weight_snr(weight, lateral_grids((9, 9), 1, period=3))
    assert within > 1e3
    assert weight_snr(weight, model[2].grids) < 10


def test_networks_without_one_period_are_refused_with_their_layers_and_an_alternative():
    stem = nn.Sequential(nn.Conv2d(3, 4, 7, stride=2, padding=3), nn.Conv2d(4, 4, 3, padding=1))
    model = sleepconv.to_locally_connected(stem, torch.zeros(1, 3, 20, 20))
    with pytest.raises(ValueError, match=r"0 \(7, 7\), 1 \(3, 3\).*one_grid.*Instant"):
        Hebbian(patterns="layer_by_layer")(model)
    strided = sleepconv.to_locally_connected(nn.Conv2d(3, 4, 3, stride=3), torch.zeros(1, 3, 18, 18))
    with pytest.raises(ValueError, match="stride.*factor in common with the period 3"):
        Hebbian(patterns="layer_by_layer")(strided)


@pytest.mark.parametrize("pooling", [nn.MaxPool2d(3), nn.MaxPool2d(3, stride=2), nn.AvgPool2d(6, stride=1)])
def test_pooling_that_loses_the_pattern_is_refused_with_the_layer_that_misses_it(pooling):
    kept = nn.Sequential(nn.Conv2d(1, 3, 5, padding=2), pooling, nn.Conv2d(3, 3, 3, padding=1))
    model = sleepconv.to_locally_connected(kept, torch.zeros(1, 1, 24, 24), keep_first=1)
    with pytest.raises(ValueError, match="reach layer '2' do not vary with the period 3"):
        Hebbian(patterns="layer_by_layer", image_shape=(1, 24, 24))(model)


def test_patterns_pass_kept_convolutions_and_pooling_that_keeps_the_period():
    kept = nn.Sequential(nn.Conv2d(9, 9, 5, padding=2), nn.MaxPool2d(2), nn.Conv2d(9, 3, 3, padding=1))
    model = sleepconv.to_locally_connected(kept, torch.zeros(1, 9, 24, 24), keep_first=1)
    before = weight_snr(model[2].weight, model[2].grids)
    rule = Hebbian(patterns="layer_by_layer", image_shape=(9, 24, 24), steps=10, patterns_per_step=100)
    rule(model)
    assert rule.reports["2"].condition < 1e6
    assert weight_snr(model[2].weight, model[2].grids) > before


@pytest.mark.parametrize("image_shape", [None, (3, 20, 20)])
def test_images_of_another_size_than_the_network_takes_are_refused(image_shape):
    kept = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(3, 3, 3))
    model = sleepconv.to_locally_connected(kept, torch.zeros(1, 3, 24, 24), keep_first=1)
    with pytest.raises(ValueError, match=r"takes inputs of size \(12, 12\).*give image_shape"):
        Hebbian(patterns="layer_by_layer", image_shape=image_shape)(model)


def test_a_dilation_that_breaks_the_period_and_images_of_another_shape_are_refused():
    dilated = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 3, 3, dilation=3, padding=3))
    model = sleepconv.to_locally_connected(dilated, torch.zeros(1, 1, 24, 24))
    with pytest.raises(ValueError, match="dilation of 1 has a factor in common"):
        Hebbian(patterns="layer_by_layer")(model)
    kept = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1))
    model = sleepconv.to_locally_connected(kept, torch.zeros(1, 1, 9, 9), keep_first=1)
    with pytest.raises(ValueError, match="give image_shape"):
        Hebbian(patterns="layer_by_layer", steps=2)(model)
    Hebbian(patterns="layer_by_layer", steps=2, image_shape=(1, 9, 9))(model)


def test_neurons_alone_in_their_grid_answer_too():
    model = sleepconv.to_locally_connected(
        nn.Sequential(nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(4, 2, 3, padding=1)), torch.zeros(1, 8, 4, 4)
    )
    rule = Hebbian(patterns="layer_by_layer", steps=50)
    rule(model)
    assert rule.reports["1"].condition < 1e9


def test_a_network_that_slept_layer_by_layer_is_awake_again():
    model = sleepconv.to_locally_connected(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), torch.zeros(2, 3, 9, 9)
    )
    Hebbian(patterns="layer_by_layer", steps=2)(model)
    assert model.training
    assert "forward" not in vars(model[0])
    assert model[1].num_batches_tracked == 0


class Position(nn.Module):
    """Adds another number at each place, as transformers do."""

    def forward(self, x):
        return x + torch.arange(x[0, 0].numel(), dtype=x.dtype).reshape(x.shape[2:])


def between(*modules, size=12):
    convolutional = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *modules, nn.Conv2d(4, 4, 3, padding=1))
    return sleepconv.to_locally_connected(convolutional, torch.zeros(1, 3, size, size))


@pytest.mark.parametrize(
    ("module", "size"), [(Position(), 12), (Position(), 4), (nn.Upsample(scale_factor=2), 6), (nn.Conv2d(4, 4, 3), 12)]
)
def test_patterns_that_do_not_repeat_are_refused_with_the_layer_they_reach(module, size):
    model = between(module, size=size)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    sleep = sleepconv.Sleep(model, every=1, rule=Hebbian(patterns="layer_by_layer"), include=["0", "2"])
    with pytest.raises(ValueError, match=r"reach layer '2' do not repeat with the period 3.*one_grid"):
        sleep.step()
    assert all(torch.equal(ours, old) for ours, old in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("size", [6, 7, 12])
def test_a_border_that_disturbs_the_patterns_is_left_out(size):
    class Edge(nn.Module):
        def forward(self, x):
            return nn.functional.pad(x[..., 1:-1, 1:-1], (1, 1, 1, 1))

    plain, disturbed = between(nn.Identity(), size=size), between(Edge(), size=size)
    disturbed.load_state_dict(plain.state_dict())
    for model in (plain, disturbed):
        Hebbian(patterns="layer_by_layer", steps=2)(model)
    for ours, expected in zip(disturbed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, expected)


def test_a_layer_that_no_pattern_reaches_is_named():
    class WithHead(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 2, 3)

        def forward(self, x):
            y = self.first(x)
            return (y, self.head(y)) if self.training else y

    model = sleepconv.to_locally_connected(WithHead(), torch.zeros(1, 1, 9, 9))
    before = model.first.weight.detach().clone()
    with pytest.raises(ValueError, match="no pattern reached head.*exclude them"):
        Hebbian(patterns="layer_by_layer")(model)
    assert torch.equal(model.first.weight, before)
    sleepconv.Sleep(model, every=1, rule=Hebbian(patterns="layer_by_layer", steps=2), exclude=["head"]).step()
    assert not torch.equal(model.first.weight, before)


def test_patterns_pass_a_model_that_is_compiled_as_a_whole():
    plain = between(nn.ReLU())
    compiled = copy.deepcopy(plain)
    compiled.compile(backend="eager", fullgraph=True)
    for model in (plain, compiled):
        Hebbian(patterns="layer_by_layer", steps=2)(model)
    for ours, expected in zip(compiled.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, expected)
