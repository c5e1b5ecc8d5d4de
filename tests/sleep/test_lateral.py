"""Lateral connections learned from correlations: the grids they give, and sleep along them."""

from math import inf

import pytest
import torch
from torch import nn

import sleepconv
from sleepconv.functional import adjusted_rand_index, lateral_grids, weight_snr
from sleepconv.models import resnet8, three_layers
from sleepconv.nn import LocallyConnected1d, LocallyConnected2d, LocallyConnected3d, PerPatchLinear
from sleepconv.sleep import (
    Circuit,
    Hebbian,
    Instant,
    Lateral,
    LateralLearning,
    Sleep,
    learn_all_connections,
    learn_all_grids_,
    learn_connections,
    learn_grids,
    read_grids,
)
from sleepconv.testing import assert_convolutional


def layer_of(kernel_size, stride=1, *, size=15, **options):
    options = {"padding": kernel_size // 2} | options
    return LocallyConnected2d(16, 16, kernel_size, input_size=size * stride, stride=stride, **options)


def small_network(**options):
    convolutions = [nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 16, 3, stride=2, padding=1)]
    model = nn.Sequential(convolutions[0], nn.BatchNorm2d(16), nn.ReLU(), convolutions[1])
    return sleepconv.to_locally_connected(model, torch.zeros(1, 1, 18, 18), **options)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel_size", [3, 5])
def test_grids_are_learned_from_random_connections(kernel_size, stride, seed):
    torch.manual_seed(seed)
    layer = layer_of(kernel_size, stride)
    assert adjusted_rand_index(learn_grids(layer, learning=LateralLearning(seed=seed)), layer.grids) == 1


@pytest.mark.parametrize("kernel_size", [3, 5])
def test_travelling_waves_and_moderate_noise_do_as_well(kernel_size):
    layer = layer_of(kernel_size)
    for learning in (LateralLearning(drive="waves"), LateralLearning(noise=0.5)):
        assert adjusted_rand_index(learn_grids(layer, learning=learning), layer.grids) == 1


def test_nothing_is_learned_from_flat_receptive_fields_nor_in_strong_noise():
    layer = layer_of(3)
    for learning in (LateralLearning(field=inf), LateralLearning(noise=10.0)):
        assert abs(adjusted_rand_index(learn_grids(layer, learning=learning), layer.grids)) < 0.1


def test_connections_are_random_before_learning():
    layer = layer_of(3)
    early = learn_grids(layer, learning=LateralLearning(sweeps=1))
    assert abs(adjusted_rand_index(early, layer.grids)) < 0.1


def test_layers_of_one_and_three_dimensions_without_padding_and_with_dilation_learn_too():
    line = LocallyConnected1d(8, 16, 4, input_size=40, stride=2)
    volume = LocallyConnected3d(4, 16, 2, input_size=5)
    dilated = layer_of(3, dilation=2, padding=2)
    grouped = layer_of(3, groups=4, padding=0, bias="neuron")
    for layer in (line, volume, dilated, grouped):
        assert adjusted_rand_index(learn_grids(layer), layer.grids) == 1


def test_neurons_that_all_see_the_same_form_one_grid():
    assert not learn_grids(LocallyConnected2d(8, 16, 4, input_size=24, stride=4)).any()


def test_own_inputs_decide_who_fires_together():
    layer = LocallyConnected1d(4, 16, 3, input_size=12, padding=1)
    halves = torch.rand(40, 4, 12)
    halves[:20, :, 6:] = 0
    halves[20:, :, :6] = 0
    grids = learn_grids(layer, halves)
    assert grids[:5].unique().numel() == grids[7:].unique().numel() == 1
    assert grids[0] != grids[-1]


def test_a_few_wrong_connections_do_not_join_two_grids():
    grids = lateral_grids((12, 12), 3).flatten()
    connections = (grids[:, None] == grids).float()
    wrong = torch.randperm(len(grids))[:20]
    connections[wrong, wrong.roll(1)] = 1
    assert adjusted_rand_index(read_grids(connections), grids) == 1


def test_a_network_learns_its_grids_from_the_input_up():
    model = sleepconv.to_locally_connected(three_layers(), torch.zeros(1, 1, 12, 24))
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    learned = learn_all_grids_(model)
    for name, grids in learned.items():
        layer = model.get_submodule(name)
        assert adjusted_rand_index(grids, lateral_grids(layer.output_size, 3)) == 1
        assert torch.equal(layer.grids, grids)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())


def test_residual_networks_with_a_kept_convolution_learn_theirs_1x1_shortcuts_with_the_network_s_period():
    model = sleepconv.to_locally_connected(resnet8(), torch.zeros(1, 3, 16, 16), keep_first=1)
    learned = learn_all_grids_(model, image_shape=(3, 16, 16))
    assert any("shortcut" in name for name in learned)
    for grids in learned.values():
        assert adjusted_rand_index(grids, lateral_grids(grids.shape, 1, period=3)) == 1


def test_what_a_layer_learned_is_what_it_generates_for_the_next():
    flat = learn_all_grids_(small_network(), learning=LateralLearning(field=inf))
    assert all(abs(adjusted_rand_index(grids, lateral_grids(grids.shape, 3))) < 0.2 for grids in flat.values())


@pytest.mark.parametrize(
    "rule", [Instant(), Hebbian(steps=3), Hebbian(patterns="disinhibited", steps=3), Circuit(presentations=20)]
)
def test_every_rule_shares_within_learned_grids_as_within_given_ones(rule):
    layer = layer_of(3, size=9, bias=False)
    twin = layer_of(3, size=9, bias=False)
    twin.load_state_dict(layer.state_dict())
    layer.grids = learn_grids(layer)
    expected, got = rule(twin).weight, rule(layer).weight
    torch.testing.assert_close(got, expected)


def test_assigned_grids_are_what_sleep_the_snr_and_the_checks_follow():
    layer = layer_of(3, size=9)
    layer.grids = torch.zeros(9, 9, dtype=torch.int64)
    sleep = Sleep(layer, every=1)
    assert not sleep.grids[""].any()
    sleep.sleep()
    assert weight_snr(layer) == inf
    assert_convolutional(layer, period=1)
    del layer.grids
    assert layer.grids.unique().numel() == 9


def test_sleep_along_learned_connections_ends_where_instant_sleep_does_up_to_their_weights():
    layer = layer_of(3)
    given = layer.weight.detach().clone()
    rule = Lateral({"": learn_connections(layer)})
    assert -weight_snr(layer).log() > 0
    Sleep(layer, every=1, rule=rule).sleep()
    assert -weight_snr(layer).log() < -12
    means = [weight[layer.grids == 4].mean(0) for weight in (layer.weight, given)]
    assert torch.corrcoef(torch.stack(means).flatten(1))[0, 1] > 0.9


def test_equal_connections_within_grids_give_instant_sleep():
    layer = layer_of(3, size=9)
    numbers = layer.grids.flatten()
    even = (numbers[:, None] == numbers).float()
    expected = Instant()(layer.weight.detach().clone(), layer.grids)
    Lateral({"": even / even.sum(1, keepdim=True)}, rounds=1)(layer)
    torch.testing.assert_close(layer.weight.detach(), expected)


def test_a_network_sleeps_along_its_learned_connections():
    model = small_network()
    record = Sleep(model, every=1, rule=Lateral(learn_all_connections(model)), statistics=True).sleep()
    assert all(snr["after"] > 1e4 > snr["before"] for snr in record.layers.values())


def test_learning_computes_on_the_layer_s_device(on_another_device):
    layer = layer_of(3, size=9)
    expected = learn_grids(layer)
    with on_another_device(layer) as there:
        assert torch.equal(learn_grids(there), expected)


def test_layers_without_correlations_are_refused():
    layer = layer_of(3, size=9)
    with pytest.raises(ValueError, match="activity of 81 of 81 neurons is the same for all 4 patterns"):
        learn_grids(layer, torch.ones(4, 16, 9, 9))
    with pytest.raises(ValueError, match="has one neuron"):
        learn_grids(LocallyConnected2d(1, 4, 3, input_size=3))
    with pytest.raises(ValueError, match="patterns of period 1 are the same everywhere"):
        learn_grids(layer_of(1))
    with pytest.raises(ValueError, match="contain NaN or infinity"):
        learn_grids(layer, torch.full((4, 16, 9, 9), inf))
    with pytest.raises(ValueError, match=r"must have the shape \(patterns, 16, 9, 9\) with at least 2 patterns, got"):
        learn_grids(layer, torch.ones(1, 16, 9, 9))
    with pytest.raises(TypeError, match="token layers have one grid"):
        learn_grids(PerPatchLinear(4, 4, num_patches=3))


def test_a_1x1_layer_learns_from_patterns_of_another_period():
    layer = layer_of(1)
    grids = learn_grids(layer, learning=LateralLearning(period=3))
    assert adjusted_rand_index(grids, lateral_grids(layer.output_size, 1, period=3)) == 1


def test_networks_that_cannot_learn_are_refused_with_the_layer_s_name():
    two_sizes = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 5))
    two_sizes = sleepconv.to_locally_connected(two_sizes, torch.zeros(1, 1, 16, 16))
    with pytest.raises(ValueError, match=r"got 0 \(3, 3\), 1 \(5, 5\); learn each layer's by itself"):
        learn_all_grids_(two_sizes)
    shrinking = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3))
    shrinking = sleepconv.to_locally_connected(shrinking, torch.zeros(1, 1, 5, 5))
    with pytest.raises(ValueError, match="layer '1': .* has one neuron"):
        learn_all_grids_(shrinking)
    with pytest.raises(ValueError, match="give image_shape"):
        learn_all_grids_(small_network(keep_first=1))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"drive": "rain"}, "`drive` must be one of grids, waves, got 'rain'"),
        ({"period": 0}, "`period` must be an int, at least 1"),
        ({"field": 0.0}, "`field` must be above 0"),
        ({"noise": -1.0}, "`noise` must be a finite number, at least 0"),
        ({"sweeps": 0}, "`sweeps` must be an int, at least 1"),
        ({"rate": 0.0}, "`rate` must be above 0"),
        ({"threshold": 1.0}, "`threshold` must be below 1"),
        ({"threshold": 2.0}, "`threshold` must be a finite number, at least 0, at most 1"),
    ],
)
def test_wrong_options_are_refused(option, message):
    with pytest.raises(ValueError, match=message):
        LateralLearning(**option)


def test_wrong_grids_and_connections_are_refused():
    layer = layer_of(3, size=9)
    with pytest.raises(ValueError, match=r"grids covers \(3,\)"):
        layer.grids = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match="needs the connections of 81 neurons, got those of 2"):
        Lateral({"": torch.eye(2)})(layer)
    with pytest.raises(ValueError, match="needs the connections of 81 neurons, got none"):
        Lateral({})(layer)
    with pytest.raises(ValueError, match="one row and column per neuron"):
        read_grids(torch.ones(2, 3))
    with pytest.raises(ValueError, match="must not be negative, NaN or infinite"):
        read_grids(torch.tensor([[1.0, -1.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match="of layer '' must sum to 1"):
        Lateral({"": torch.ones(81, 81)})
    with pytest.raises(TypeError, match="must map names of layers to matrices"):
        Lateral(torch.eye(2))


def test_rules_that_need_equal_views_refuse_grids_that_mix_them():
    layer = layer_of(3, size=9)
    layer.grids = torch.zeros(9, 9, dtype=torch.int64)
    for rule in (Hebbian(), Hebbian(patterns="disinhibited"), Circuit(presentations=2)):
        with pytest.raises(ValueError, match="joins neurons that see different patterns"):
            rule(layer)
    with pytest.raises(ValueError, match="`period` would replace the layer's assigned grids"):
        Instant(period=2)(layer)
