"""Claims of section 4 on whole layers and networks."""

import pytest
import torch
from torch import nn

import sleepconv
from sleepconv.functional import share_weights_
from sleepconv.nn import (
    LocallyConnected1d,
    LocallyConnected2d,
    LocallyConnected3d,
    PerPatchLinear,
)
from sleepconv.sleep import Hebbian, Instant

LAYERS = {
    "plain": lambda: LocallyConnected2d(4, 6, 3, input_size=10, padding=1),
    "strided": lambda: LocallyConnected2d(4, 6, 3, input_size=13, stride=2),
    "dilated": lambda: LocallyConnected2d(2, 6, 3, input_size=12, dilation=2, padding=2),
    "dilated with a common factor": lambda: LocallyConnected2d(2, 3, 2, input_size=14, dilation=2),
    "grouped": lambda: LocallyConnected2d(4, 6, (3, 2), input_size=(9, 8), groups=2),
    "even": lambda: LocallyConnected2d(3, 4, 4, input_size=16, stride=4),
    "sequence": lambda: LocallyConnected1d(4, 6, 5, input_size=30, padding="same"),
    "volume": lambda: LocallyConnected3d(2, 3, 2, input_size=6),
    "tokens": lambda: PerPatchLinear(8, 5, num_patches=12),
}


@pytest.mark.parametrize(
    "rule",
    [
        Instant(),
        Hebbian(steps=5),
        Hebbian(steps=5, patterns="independent"),
        Hebbian(steps=5, patterns="layer_by_layer"),
    ],
)
def test_a_converted_copied_convolution_is_a_fixed_point_of_sleep(rule):
    conv = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2, padding=1))
    x = torch.randn(2, 3, 9, 9)
    local = sleepconv.to_locally_connected(conv, x, copy_weights=True)
    rule(local)
    torch.testing.assert_close(local(x), conv(x), rtol=1e-4, atol=1e-5)


def test_layers_end_alike_whether_they_learn_in_turn_or_together():
    def network():
        torch.manual_seed(1)
        conv = nn.Sequential(nn.Conv2d(8, 4, 3, padding=1, bias=False), nn.Conv2d(4, 2, 3, padding=1, bias=False))
        return sleepconv.to_locally_connected(conv, torch.zeros(1, 8, 6, 6))

    expected = Instant()(network())
    for in_turn in (False, True):
        model = network()
        Hebbian(decay=1e-6, patterns="layer_by_layer", steps=170, in_turn=in_turn, patterns_per_step=64)(model)
        for ours, shared in zip(model.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(ours, shared, rtol=0, atol=0.01 * float(shared.detach().abs().max()))


def test_without_perfect_equalisation_only_layers_that_learn_in_turn_keep_their_mean_filters():
    def worst(**options):
        torch.manual_seed(0)
        conv = [nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(3, 3, 3, padding=1, bias=False)]
        model = sleepconv.to_locally_connected(nn.Sequential(*conv), torch.zeros(1, 3, 9, 9))
        rule = Hebbian(decay=1e-3, patterns="spontaneous", steps=40, patterns_per_step=48, **options)
        rule(model)
        reports = rule.reports.values()
        return max(report.mean_shift for report in reports), max(report.negative_log_snr for report in reports)

    at_once, in_turn = worst(equalisation=0.5), worst(equalisation=0.5, in_turn=True)
    perfect = worst(equalisation=1.0)
    assert perfect[0] < 1e-5
    assert at_once[0] > 0.2
    assert in_turn[0] < 0.02
    assert max(at_once[1], in_turn[1], perfect[1]) < -6  # all of them share


@pytest.mark.parametrize("patterns", ["one_grid", "independent"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_hebbian_sleep_with_little_decay_ends_where_instant_sharing_does(name, patterns):
    layer = LAYERS[name]()
    expected = share_weights_(layer.weight.detach().clone(), layer.grids)
    Hebbian(decay=1e-6, patterns=patterns, steps=150)(layer)
    torch.testing.assert_close(layer.weight.detach(), expected, rtol=0, atol=1e-4 * float(expected.abs().max()) + 2e-5)


def test_sleep_shares_whatever_moved_the_weights():
    layer = LocallyConnected2d(2, 4, 3, input_size=9)
    sleep = sleepconv.Sleep(layer, every=2)
    for _ in range(2):  # no optimizer, no gradient: some other learning
        layer.weight.data += torch.randn_like(layer.weight)
        learned = layer.weight.detach().clone()
        sleep.step()
    torch.testing.assert_close(layer.weight.detach(), share_weights_(learned, layer.grids))


def test_small_learning_rates_leave_the_neurons_of_a_grid_close_together():
    def spread(rate):
        torch.manual_seed(1)
        model = Instant()(LocallyConnected2d(3, 8, 3, input_size=9))
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        for _ in range(10):
            optimizer.zero_grad()
            (model(torch.randn(16, 3, 9, 9)) - 1).square().mean().backward()
            optimizer.step()
        weight = model.weight.detach()
        return float((weight - share_weights_(weight.clone(), model.grids)).std())

    assert 0 < 30 * spread(1e-4) < spread(1e-2)
