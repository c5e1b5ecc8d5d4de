"""Sleep through a whole network, whose layers generate the patterns that the next ones learn from."""

import pytest
import torch
from torch import nn

import sleepconv
from sleepconv.functional import hebbian_step_
from sleepconv.sleep import Hebbian
from sleepconv.sleep.plasticity import PoolLearning
from sleepconv.sleep.pools import LayerPools


def local_resnet8(**options):
    torch.manual_seed(0)
    return sleepconv.to_locally_connected(sleepconv.models.resnet8(), torch.zeros(1, 3, 16, 16), **options)


def narrow(depth=5):
    layers = [layer for _ in range(depth) for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())]
    return sleepconv.to_locally_connected(nn.Sequential(*layers), torch.zeros(1, 4, 12, 12))


def worst(rule):
    """Return the worst pool's −log SNR by Eq. 6, or log(Σ variance / Σ mean²) if that is higher."""
    return max(max(report.negative_log_snr, report.negative_log_pooled_snr) for report in rule.reports.values())


def train_statistics(model):
    """Give BatchNorm statistics and gains that would silence half of the neurons or let them always fire."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-5, 5)
            nn.init.uniform_(module.weight, 0.1, 3)
            nn.init.uniform_(module.bias, -5, 5)


def test_feedforward_patterns_alone_share_only_in_the_first_layers():
    rule = Hebbian(patterns="layer_by_layer", steps=30)
    rule(local_resnet8())
    assert rule.reports["conv1"].negative_log_snr < -5
    assert worst(rule) > 0


@pytest.mark.parametrize("options", [{}, {"keep_first": 1}])
def test_one_sweep_of_disinhibited_grids_shares_in_every_layer_and_keeps_the_means(options):
    model = local_resnet8(**options)
    train_statistics(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    rule = Hebbian(patterns="disinhibited", steps=1, image_shape=(3, 16, 16))
    rule(model)
    assert worst(rule) < -11
    assert max(report.negative_log_snr for report in rule.reports.values()) < -12
    assert max(report.condition for report in rule.reports.values()) < 10
    for name, layer in rule.grids(sleepconv.Sleep(model, every=1).layers).items():
        old, new = (
            weight.flatten(0, 1) for weight in (before[f"{name}.weight"], model.get_parameter(f"{name}.weight"))
        )
        for grid in layer.unique():
            neurons = layer.flatten() == grid
            torch.testing.assert_close(new[neurons].mean(0), old[neurons].mean(0), atol=1e-5, rtol=1e-5)


def test_batch_normalisation_is_left_as_it_was():
    model = narrow(2)
    train_statistics(model)
    x = torch.randn(2, 4, 12, 12)
    norm = model[1]
    expected = norm.eval()(x)
    Hebbian(patterns="disinhibited", steps=1)(model)
    assert "forward" not in vars(norm)
    torch.testing.assert_close(norm(x), expected)


def test_spontaneous_activity_shares_in_every_layer():
    rule = Hebbian(patterns="spontaneous", steps=60)
    rule(narrow())
    assert worst(rule) < -8


@pytest.mark.parametrize("inhibition", [None, 10.0])
def test_patterns_one_at_a_time_are_steps_of_equation_4(inhibition):
    layer = sleepconv.nn.LocallyConnected2d(2, 3, 3, input_size=9).double()
    pools = LayerPools(layer)
    pool, rule = pools.sharing[0], Hebbian(decay=0.3, rate=0.02, inhibition=inhibition)
    patterns = torch.zeros(1, 12, pools.inputs, dtype=torch.float64)
    for presentation in range(11):  # the last one is silent
        patterns[0, presentation, (5 * presentation) % pools.inputs] = 1 + presentation
    expected, velocity, initial = pool.weight.clone(), torch.zeros_like(pool.weight), pool.weight.clone()
    for presentation in range(12):
        pattern = patterns[:, presentation : presentation + 1]
        hebbian_step_(expected, velocity, initial, pattern, rate=0.02, decay=0.3, inhibition=inhibition)
    PoolLearning(pool, rule).learn_one_at_a_time(patterns)
    torch.testing.assert_close(pool.weight, expected)


def test_momentum_and_noise_are_possible_too():
    rule = Hebbian(patterns="disinhibited", steps=40, momentum=0.5, noise=0.01, decay=1e-3)
    rule(narrow(2))
    assert worst(rule) < -3


def test_a_resnet18_with_its_stem_kept_shares_in_every_layer():
    torch.manual_seed(0)
    images = (3, 128, 128)  # the last layers then have 4×4 neurons, so that most grids have several
    model = sleepconv.models.resnet18(num_classes=2, width=4, stem="7x7")
    local = sleepconv.to_locally_connected(model, torch.zeros(1, *images), keep_first=1)
    rule = Hebbian(patterns="disinhibited", steps=1, image_shape=images)
    rule(local)
    assert worst(rule) < -12


def test_a_sweep_of_more_grids_than_pass_at_once_is_one_step():
    steps_seen = []

    def rate(step):
        steps_seen.append(step)
        return 1e-3

    rule = Hebbian(patterns="disinhibited", steps=2, rate=rate)
    rule(sleepconv.nn.LocallyConnected2d(64, 1, 3, input_size=8))  # 576 grids
    assert rule.reports[""].steps == 2
    assert set(steps_seen) == {0, 1}
