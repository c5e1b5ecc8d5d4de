"""Who shares with whom where a rule chooses the border or the period."""

import copy
import math

import pytest
import torch
from torch import nn

import sleepconv
from sleepconv import Sleep
from sleepconv.functional import lateral_grids, share_weights_, weight_snr
from sleepconv.nn import LocallyConnected2d
from sleepconv.optim import share_moments
from sleepconv.sleep import Circuit, Hebbian, Instant
from sleepconv.testing import assert_convolutional

LAYERS = {
    "plain": lambda: LocallyConnected2d(4, 6, 3, input_size=10, padding=1),
    "grouped": lambda: LocallyConnected2d(4, 6, (3, 2), input_size=(9, 8), padding=1, groups=2),
}
SAMPLE = torch.randn(2, 1, 9, 9)


def network(first_filter=3):
    convolutions = nn.Sequential(nn.Conv2d(1, 4, first_filter, padding=first_filter // 2), nn.Conv2d(4, 1, 3))
    return sleepconv.to_locally_connected(convolutions, SAMPLE)


def train_step(model, optimizer):
    optimizer.zero_grad()
    model(SAMPLE).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "rule",
    [
        Instant(border="interior"),
        Hebbian(decay=1e-6, steps=200, border="interior"),
        Hebbian(decay=1e-6, steps=300, patterns="independent", border="interior"),
        Hebbian(decay=1e-6, steps=60, patterns="layer_by_layer", border="interior"),
    ],
)
@pytest.mark.parametrize("name", LAYERS)
def test_with_border_interior_the_border_stays_and_the_interior_shares_its_own_mean(rule, name):
    layer = LAYERS[name]()
    if name != "plain" and getattr(rule, "patterns", "") == "layer_by_layer":
        pytest.skip("filters of two sizes have no common period")
    expected = layer.weight.detach().clone()
    share_weights_(expected[layer.interior], layer.grids[layer.interior])
    rule(layer)
    torch.testing.assert_close(layer.weight.detach(), expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
    border = torch.ones(layer.output_size, dtype=torch.bool)
    border[layer.interior] = False
    assert torch.equal(layer.weight[border], expected[border])
    assert_convolutional(layer, border="interior", tolerance=1e-3)


def test_the_circuit_leaves_the_border_too():
    layer = LAYERS["plain"]()
    before, within = layer.weight.detach().clone(), layer.interior
    snr = weight_snr(before[within], layer.grids[within])
    Circuit(presentations=200, border="interior")(layer)
    assert torch.equal(layer.weight[0], before[0])
    assert weight_snr(layer.weight[within], layer.grids[within]) > snr


def test_with_period_1_a_layer_shares_one_filter_as_a_convolution_does():
    layer = LAYERS["plain"]()
    mean, images = layer.weight.detach().mean((0, 1)), torch.randn(2, 4, 10, 10)
    assert_convolutional(Instant(period=1)(layer), period=1)
    torch.testing.assert_close(layer.weight.detach(), mean.expand_as(layer.weight))
    torch.testing.assert_close(layer(images), layer.to_conv2d()(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_after_sleeps_with_two_coprime_periods_a_layer_is_a_convolution(stride):
    layer = LocallyConnected2d(2, 3, 3, input_size=24, stride=stride, padding=1).double()
    mean = layer.weight.detach().mean(dim=(0, 1))
    sleep = Sleep(layer, every=1, rule=Instant(period=[3, 4]))
    assert int(sleep.grids[""].max()) == 0
    for _ in range(8):
        sleep.step()
    torch.testing.assert_close(layer.weight.detach(), mean.expand_as(layer.weight), rtol=0, atol=0.05)
    assert_convolutional(layer, period=1)


def test_a_map_too_small_for_the_second_period_shares_through_the_first():
    layer = LocallyConnected2d(2, 3, 3, input_size=4, padding=1)
    sleep = Sleep(layer, every=1, rule=Instant(period=(3, 4)))
    assert torch.equal(sleep.grids[""], layer.grids)
    sleep.step()
    assert_convolutional(layer)


def test_hebbian_sleeps_on_the_grids_of_two_periods_end_at_one_filter_too():
    weight = 1 + torch.randn(12, 12, 2, 9, dtype=torch.float64)
    for period in (3, 4) * 2:
        Hebbian(decay=1e-7)(weight, lateral_grids((12, 12), 3, period=period))
    assert -math.log(weight_snr(weight, torch.zeros(12, 12, dtype=torch.int64))) < -20


def test_patterns_that_pass_through_a_network_and_span_a_layers_inputs_end_at_instant_sharing_of_its_period():
    convolutions = nn.Sequential(nn.Conv2d(2, 3, 1), nn.Conv2d(3, 3, 3, padding=1))
    model = sleepconv.to_locally_connected(convolutions, torch.zeros(1, 2, 9, 9))
    learned, of_the_network, of_each_layer = model[0], copy.deepcopy(model[0]), copy.deepcopy(model[0])
    Hebbian(decay=1e-6, patterns="layer_by_layer", steps=200)(model)
    Instant(period=3)(of_the_network)
    Instant()(of_each_layer)
    torch.testing.assert_close(learned.weight, of_the_network.weight, rtol=0, atol=1e-4)
    assert not torch.allclose(learned.weight, of_each_layer.weight, rtol=0, atol=0.1)


def test_where_the_border_stays_its_moments_stay_and_statistics_are_those_of_the_interior():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    sleep = Sleep(model, every=1, rule=Instant(border="interior"), statistics=True)
    sleep.attach(optimizer)
    share_moments(optimizer, sleep)
    train_step(model, optimizer)
    assert sleep.records[0].layers["0"]["after"] == math.inf
    moment = optimizer.state[model[0].weight]["momentum_buffer"]
    assert torch.equal(moment[0], model[0].weight.grad[0])
    assert torch.equal(moment[1, 1], moment[4, 7])


def test_where_a_whole_layer_shares_its_moments_do_too_and_statistics_are_those_of_the_layer():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    sleep = Sleep(model, every=1, rule=Instant(period=1), statistics=True)
    sleep.attach(optimizer)
    share_moments(optimizer, sleep)
    whole_layer = torch.zeros(9, 9, dtype=torch.int64)
    before = float(weight_snr(model[0].weight, whole_layer))
    train_step(model, optimizer)
    assert sleep.records[0].layers["0"] == {"before": before, "after": math.inf}
    moment = optimizer.state[model[0].weight]["momentum_buffer"]
    assert torch.equal(moment, moment[0, 0].expand_as(moment))


@pytest.mark.parametrize("rule", [Instant(period=3), Hebbian(decay=1e-6, patterns="layer_by_layer", steps=100)])
def test_statistics_and_moments_follow_the_grids_of_the_rule_also_where_they_are_not_the_layers_own(rule):
    model = network(first_filter=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    sleep = Sleep(model, every=1, rule=rule, statistics=True)
    sleep.attach(optimizer)
    share_moments(optimizer, sleep)
    train_step(model, optimizer)
    assert sleep.snrs()["0"] == sleep.records[0].layers["0"]["after"] > 1e6
    moment = optimizer.state[model[0].weight]["momentum_buffer"]
    assert torch.equal(moment[0, 0], moment[3, 6])
    assert not torch.equal(moment[0, 0], moment[0, 1])
