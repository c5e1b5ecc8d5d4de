"""Lateral connections that equalise responses imperfectly: neurons of a grid see different things."""

import pytest
import torch
from torch import nn

import sleepconv
from sleepconv.nn import LocallyConnected2d
from sleepconv.sleep import Hebbian
from sleepconv.sleep.passing import SleepingNetwork
from sleepconv.sleep.plasticity import PoolLearning
from sleepconv.sleep.pools import LayerPools, tiled

LAYERS = [
    LocallyConnected2d(2, 3, 3, input_size=(9, 10), padding=1),
    LocallyConnected2d(2, 3, 3, input_size=11, padding=1, stride=2),
    LocallyConnected2d(2, 4, 3, input_size=10, dilation=2, groups=2, padding=2),
    LocallyConnected2d(2, 3, 1, input_size=7),
]


@pytest.mark.parametrize("layer", LAYERS)
def test_where_a_pattern_repeats_all_neurons_of_a_grid_see_the_same_also_in_the_padding(layer):
    pools, cell = LayerPools(layer, period=3), torch.randn(5, 2, 3, 3)
    for pool in pools.pools:
        alike, own = pools.windows(pool, cell), pools.own_windows(pool, tiled(cell, layer.input_size))
        torch.testing.assert_close(own, alike[:, None].expand_as(own))


def test_each_neuron_answers_with_its_own_response_and_the_mean():
    layer = LocallyConnected2d(2, 3, 3, input_size=9)
    pools, x = LayerPools(layer, period=3), torch.randn(4, 2, 9, 9)
    expected = layer(x).detach()
    for equalisation in (0.0, 0.3, 1.0):
        out = torch.zeros_like(expected)
        for pool in pools.pools:
            pools.place_(out, pool, pools.respond(pool, pools.own_windows(pool, x), equalisation))
        mean = torch.zeros_like(expected)
        for index in (pool.index[0] for pool in pools.pools):
            mean[:, :, *index] = expected[:, :, *index].mean(dim=(2, 3), keepdim=True)
        torch.testing.assert_close(out, equalisation * mean + (1 - equalisation) * expected)


def test_neurons_that_see_different_things_learn_by_equation_4_from_what_they_see():
    layer = LocallyConnected2d(1, 2, 2, input_size=6).double()
    pool, rule = LayerPools(layer).sharing[0], Hebbian(decay=0.2, rate=0.05)
    patterns = torch.randn(1, pool.neurons, 7, 4, dtype=torch.float64)
    before = pool.weight.clone()
    responses = torch.einsum("gnci,gnpi->gncp", before, patterns)
    pull = torch.einsum("gncp,gnpi->gnci", responses - responses.mean(dim=1, keepdim=True), patterns) / 7
    PoolLearning(pool, rule).learn(patterns)
    torch.testing.assert_close(pool.weight, before - 0.05 * pull)


def test_residual_networks_share_without_perfect_equalisation_too():
    torch.manual_seed(0)
    model = sleepconv.to_locally_connected(sleepconv.models.resnet8(), torch.zeros(1, 3, 16, 16))
    rule = Hebbian(patterns="disinhibited", steps=1, equalisation=0.5)
    before = {name: -layer_snr.log() for name, layer_snr in _snrs(model).items()}
    rule(model)
    assert all(-after.log() < before[name] for name, after in _snrs(model).items())


def _snrs(model):
    layers = sleepconv.Sleep(model, every=1).layers
    return {name: sleepconv.functional.weight_snr(layer.weight, layer.grids) for name, layer in layers.items()}


class Backwards(nn.Module):
    """Runs the layer that it names last first."""

    def __init__(self):
        super().__init__()
        self.last, self.first = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x):
        return self.last(self.first(x).relu())


def test_turns_follow_the_patterns_and_not_the_names():
    model = sleepconv.to_locally_connected(Backwards(), torch.zeros(1, 2, 9, 9))
    pools = {name: LayerPools(layer, period=3) for name, layer in sleepconv.Sleep(model, every=1).layers.items()}
    network = SleepingNetwork(model, pools, None, torch.Generator())
    assert list(pools) == ["last", "first"]
    assert network.explore(4) == ["first", "last"]


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="`equalisation` must be.*at most 1"):
        Hebbian(patterns="spontaneous", equalisation=1.5)
    with pytest.raises(ValueError, match="`equalisation` below 1 needs patterns that pass through the network"):
        Hebbian(patterns="one_grid", equalisation=0.5)
    resized = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Upsample(scale_factor=2), nn.Conv2d(1, 1, 3, padding=1))
    model = sleepconv.to_locally_connected(resized, torch.zeros(1, 1, 9, 9))
    with pytest.raises(ValueError, match="reach layer '2' do not repeat with the period 3"):
        Hebbian(patterns="spontaneous", equalisation=0.5)(model)
