"""The circuit of Eq. 8 in every layer of a network."""

from statistics import fmean

import pytest
import torch
from torch import nn

import sleepconv
from sleepconv.simulation.circuit import rate_fixed_point
from sleepconv.sleep import DivergenceError, NetworkCircuit
from sleepconv.sleep.network_circuit import _Circuits
from sleepconv.sleep.passing import SleepingNetwork
from sleepconv.sleep.patterns import Disinhibited
from sleepconv.sleep.pools import LayerPools


def narrow(depth=4, *, bias=True):
    convolutions = [layer for _ in range(depth) for layer in (nn.Conv2d(4, 4, 3, padding=1, bias=bias), nn.ReLU())]
    torch.manual_seed(0)
    return sleepconv.to_locally_connected(nn.Sequential(*convolutions), torch.zeros(1, 4, 12, 12))


def sleeping(model, rule):
    pools = {name: LayerPools(layer, period=3) for name, layer in sleepconv.Sleep(model, every=1).layers.items()}
    generator = torch.Generator().manual_seed(0)
    network = SleepingNetwork(model, pools, Disinhibited(generator), generator)
    return network, _Circuits(rule, network)


def euler(weight, initial, x, rule):
    """Return the weights after one presentation that begins at rest, every Euler step of Eq. 8 written out."""
    constants, fraction = rule.constants, rule.step_ms / rule.tau_ms
    rate = rule.speed * fraction / len(x)
    rates, inhibitory = torch.full_like(weight[..., 0], rule.bias), torch.zeros_like(weight[:, 0, :, 0])
    for _ in range(constants.steps):
        drive = weight @ x
        change = -(rates - rule.bias)[..., None] * x - rule.decay * (weight - initial)
        rates_now = rates
        rates = rates + fraction * (-rates + drive - rule.inhibition * inhibitory[:, None] + rule.bias)
        inhibitory = inhibitory + fraction * (-inhibitory + rates_now.mean(dim=1) - rule.bias)
        weight = weight + rate * change
    return weight


def test_every_presentation_is_the_circuit_simulated_step_by_step():
    model, rule = narrow(1).double(), NetworkCircuit(decay=0.3, presentation_ms=40.0)
    network, circuits = sleeping(model, rule)
    pools = network.layers["0"]
    pool = pools.sharing[0]
    windows = torch.zeros(1, 7, pools.inputs, dtype=torch.float64)
    for presentation in range(6):  # two columns twice, and a last presentation in which nothing fires
        windows[0, presentation, 5 * (presentation % 4)] = 0.5 + 0.2 * presentation
    initial = pool.weight.clone()
    expected = initial.clone()
    for x in windows[0]:
        expected = euler(expected, initial, x * pools.inputs**0.5, rule)
    circuits.learn("0", pools, pool, windows)
    torch.testing.assert_close(pool.weight, expected)


def test_a_circuit_passes_on_the_mean_of_the_rates_of_equation_9():
    network, circuits = sleeping(narrow(1, bias=False), NetworkCircuit(inhibition=4.0))
    pools = network.layers["0"]
    pool, windows = pools.sharing[0], torch.randn(1, 5, pools.inputs)
    drive = torch.einsum("gpi,gnci->pcn", windows, pool.weight)
    settled = rate_fixed_point(drive, inhibition=4.0, bias=1.0).mean(dim=-1, keepdim=True)
    torch.testing.assert_close(circuits.learn("0", pools, pool, windows), settled - 1, rtol=1e-4, atol=1e-5)


def test_every_layer_of_a_chain_of_circuits_shares():
    rule = NetworkCircuit()
    rule(narrow())
    assert max(report.negative_log_snr for report in rule.reports.values()) < -6
    assert max(report.negative_log_pooled_snr for report in rule.reports.values()) < -6
    assert all(report.steps == 3 * 36 for report in rule.reports.values())


def test_residual_networks_with_strides_shortcuts_and_a_kept_convolution_share_too():
    torch.manual_seed(0)
    model = sleepconv.to_locally_connected(sleepconv.models.resnet8(), torch.zeros(1, 3, 16, 16), keep_first=1)
    rule = NetworkCircuit(image_shape=(3, 16, 16))
    rule(model)
    assert max(report.negative_log_snr for report in rule.reports.values()) < -6


@pytest.mark.parametrize(("inhibition", "percent"), [(10, 52), (40, 19), (100, 8), (300, 3), (1000, 1), (3000, 0.3)])
def test_the_mean_filters_of_the_miniature_shorten_as_the_documentation_says(inhibition, percent):
    torch.manual_seed(0)
    model = sleepconv.to_locally_connected(sleepconv.models.resnet8(), torch.zeros(1, 3, 16, 16))
    rule = NetworkCircuit(inhibition=inhibition, step_ms=min(1.0, 30 / inhibition))
    rule(model)
    shift = 100 * fmean(report.mean_shift for report in rule.reports.values())
    assert shift == pytest.approx(percent, abs=0.5 if percent >= 1 else 0.05)


def test_bad_settings_are_refused_with_what_is_stable():
    with pytest.raises(ValueError, match="`step_ms` must be between 0 and"):
        NetworkCircuit(inhibition=100.0)
    with pytest.raises(ValueError, match="`sweeps` must be an int, at least 1, got 0"):
        NetworkCircuit(sweeps=0)
    with pytest.raises(ValueError, match="`speed` must be above 0, got 0"):
        NetworkCircuit(speed=0.0)
    with pytest.raises(ValueError, match="`image_shape` must be an int, at least 1, got 0"):
        NetworkCircuit(image_shape=(3, 0, 12))
    with pytest.raises(ValueError, match=r"`image_shape` must be \(channels, \*size\), got 'abc'"):
        NetworkCircuit(image_shape="abc")
    model = narrow(1)
    before = model[0].weight.detach().clone()
    with pytest.raises(DivergenceError, match="diverge at speed=200"):
        NetworkCircuit(speed=200.0)(model)
    assert torch.equal(model[0].weight, before)
    nn.init.constant_(model[0].weight, torch.nan)
    with pytest.raises(ValueError, match="the weights contain NaN or infinity"):
        NetworkCircuit()(model)


def test_networks_through_which_no_pattern_can_pass_are_refused_with_an_alternative():
    stem = nn.Sequential(nn.Conv2d(3, 4, 5, padding=2), nn.Conv2d(4, 4, 3, padding=1))
    with pytest.raises(ValueError, match=r"0 \(5, 5\), 1 \(3, 3\).*Circuit\(\) or Instant"):
        NetworkCircuit()(sleepconv.to_locally_connected(stem, torch.zeros(1, 3, 15, 15)))
    tokens = sleepconv.nn.PerPatchLinear(8, 8, num_patches=4)
    with pytest.raises(ValueError, match="token layers have no period"):
        NetworkCircuit()(nn.Sequential(tokens))
