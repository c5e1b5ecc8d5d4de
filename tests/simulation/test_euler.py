import math
from dataclasses import replace

import pytest
import torch

from sleepconv.simulation.circuit import (
    CircuitConstants,
    CircuitState,
    paper_learning_rate,
    present_each_,
    rate_fixed_point,
    rectified_fixed_point,
)
from sleepconv.simulation.euler import (
    EulerCircuit,
    anti_hebbian,
    keep_signs,
    rectified,
    saturating,
)
from sleepconv.simulation.theory import lateral_fixed_point, steady_response

SHORT = CircuitConstants(presentation_ms=20.0)


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("constants", [CircuitConstants(), CircuitConstants(3.0, 20.0, 0.5, 2.0, 60.0, 0.5)])
def test_the_plain_circuit_and_the_condensed_one_are_the_same(constants):
    weight, patterns, decay = 1 + normal(3, 7, 4), normal(3, 3, 4, seed=1), 0.1
    plain = EulerCircuit(constants, decay=decay).run(weight, patterns)

    state = CircuitState.at_rest(weight.unsqueeze(2))
    decays = torch.full((3,), decay, dtype=torch.float64)
    for _ in present_each_(state, patterns, rate=paper_learning_rate, decay=decays, constants=constants):
        pass
    torch.testing.assert_close(plain.weight, state.weight.squeeze(2), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plain.rates, constants.bias + state.above_bias.squeeze(2), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plain.inhibitory, state.inhibitory, rtol=1e-12, atol=1e-12)
    assert (plain.weight - weight).abs().max() > 1e-3


def settled_rates(drive, **options):
    return EulerCircuit(**options).run(drive.unsqueeze(-1), torch.ones(6, 1, dtype=torch.float64), rate=0.0).rates


def test_neurons_that_are_inhibited_differently_settle_at_equation_9_with_their_own_alpha():
    drive, alpha = 1 + 2 * normal(6), 10 * torch.rand(6, dtype=torch.float64)
    expected = rate_fixed_point(drive, inhibition=alpha, bias=1.0)
    torch.testing.assert_close(settled_rates(drive, inhibition=alpha.unsqueeze(1)), expected, rtol=0, atol=1e-6)


def test_sparse_weighted_connections_to_several_inhibitory_neurons_settle_in_closed_form():
    drive = 1 + 2 * normal(6)
    excitation = torch.rand(3, 6, dtype=torch.float64) * (torch.rand(3, 6) < 0.5) / 3
    inhibition = 2 * torch.rand(6, 3, dtype=torch.float64)
    expected = 1 + steady_response(excitation, inhibition) @ drive
    rates = settled_rates(drive, excitation=excitation, inhibition=inhibition)
    torch.testing.assert_close(rates, expected, rtol=0, atol=1e-6)


def test_inhibitory_neurons_that_divide_the_work_act_as_one():
    drive = 1 + 2 * normal(6)
    many = settled_rates(drive, excitation=torch.full((4, 6), 1 / 6, dtype=torch.float64))
    torch.testing.assert_close(many, settled_rates(drive))


@pytest.mark.parametrize("bias", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("inhibition", [0.0, 1.0, 10.0])
def test_rectified_rates_settle_in_closed_form(inhibition, bias):
    drive = 3 * normal(4, 9) - torch.tensor([[0.0], [3.0], [-3.0], [50.0]])
    constants = CircuitConstants(inhibition=inhibition, bias=bias)
    rates = settled_rates(drive, transfer=rectified, constants=constants)
    expected = rectified_fixed_point(drive, inhibition=inhibition, bias=bias)
    torch.testing.assert_close(rates, expected, rtol=0, atol=1e-5)
    assert (expected == 0).any()


def test_perfect_inhibition_is_the_limit_of_strong_inhibition_for_rectified_rates_too():
    drive = 3 * normal(4, 9)
    strong, perfect = (rectified_fixed_point(drive, inhibition=alpha, bias=1.0) for alpha in (1e9, None))
    torch.testing.assert_close(strong, perfect)
    torch.testing.assert_close(perfect.mean(dim=-1), torch.ones(4, dtype=torch.float64))


def test_where_no_rate_is_negative_rectification_changes_nothing():
    drive = normal(4, 9)
    expected = rate_fixed_point(drive, inhibition=10.0, bias=20.0)
    torch.testing.assert_close(rectified_fixed_point(drive, inhibition=10.0, bias=20.0), expected)


def test_saturating_rates_stay_within_their_bounds():
    course = EulerCircuit(transfer=saturating(2.0)).follow(5 * normal(8, 3), normal(2, 3))
    rates = torch.stack([state.rates for state in course])
    assert rates.min() >= 0
    assert rates.max() <= 2
    assert rates.max() > 1.9


def test_late_inhibition_arrives_late_and_settles_at_the_same_rates():
    drive, constants = torch.tensor([[1.0], [3.0]], dtype=torch.float64), CircuitConstants(inhibition=1.0)
    inputs = torch.ones(9, 1, dtype=torch.float64)
    prompt, late = (
        torch.stack([state.rates for state in EulerCircuit(constants, delay_ms=ms).follow(drive, inputs, rate=0.0)])
        for ms in (0.0, 10.0)
    )
    free = EulerCircuit(replace(constants, inhibition=0.0)).follow(drive, inputs, rate=0.0)
    for before, unhindered in zip(late[:12], free, strict=False):
        torch.testing.assert_close(before, unhindered.rates)
    assert (late[12] - prompt[12]).abs().max() > 0.01
    torch.testing.assert_close(late[-1], prompt[-1], rtol=0, atol=1e-6)


def test_noise_has_the_deviation_that_was_asked_for():
    circuit = EulerCircuit(CircuitConstants(inhibition=0.0), noise=0.5)
    still = torch.zeros(400, 1, dtype=torch.float64)
    states = list(circuit.follow(still, torch.zeros(10, 1, dtype=torch.float64), rate=0.0))
    late = torch.stack([state.rates for state in states[300:]])
    expected = 0.5 / math.sqrt(1 - circuit.constants.fraction / 2)  # of an autoregressive process
    assert float(late.std()) == pytest.approx(expected, rel=0.03)
    assert torch.equal(states[-1].rates, circuit.run(still, torch.zeros(10, 1, dtype=torch.float64), rate=0.0).rates)


QUICK = CircuitConstants(inhibition=4.0, tau_ms=3.0, presentation_ms=30.0, momentum=0.0)


def mean_end(circuit, weight, inputs):
    """Where weights end on average over many circuits that differ only in their inputs."""
    return circuit.run(weight.expand(inputs.shape[1], -1, -1), inputs, rate=lambda step: 2 / (1000 + step)).weight.mean(
        0
    )


def test_a_circuit_with_missing_and_uneven_connections_ends_at_its_closed_form():
    generator = torch.Generator().manual_seed(2)
    excitation = (torch.rand(1, 8, generator=generator) < 0.7).double() / 8
    inhibition = 4 * torch.rand(8, 1, dtype=torch.float64, generator=generator)
    circuit = EulerCircuit(QUICK, 0.5, excitation=excitation, inhibition=inhibition)
    weight = 1 + normal(8, 2)
    ended = mean_end(circuit, weight, normal(200, 100, 2, seed=3))
    covariance, response = torch.eye(2, dtype=torch.float64), steady_response(excitation, inhibition)
    expected = lateral_fixed_point(weight, covariance, response, decay=0.5)
    assert (ended - expected).norm() < 0.1 * (weight - expected).norm()


def test_partners_that_see_other_inputs_are_not_shared_with():
    # Two grids of four neurons; the last of each is wired to the other grid's inhibitory neuron.
    sees, wired = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), torch.tensor([0, 0, 0, 1, 1, 1, 1, 0])
    member = torch.nn.functional.one_hot(wired, 2).double()
    circuit = EulerCircuit(QUICK, 0.5, excitation=member.T / 4, inhibition=4 * member)
    weight, inputs = 1 + normal(8, 2), normal(200, 100, 2, 2, seed=4)
    ended = mean_end(circuit, weight, inputs[:, :, sees])
    covariance, response = torch.eye(2, dtype=torch.float64), steady_response(member.T / 4, 4 * member)
    same = sees[:, None] == sees
    expected = lateral_fixed_point(weight, covariance, response, decay=0.5, same_input=same)
    as_if_right = lateral_fixed_point(weight, covariance, response, decay=0.5)
    assert (ended - expected).norm() < 0.1 * (weight - expected).norm()
    assert (ended - as_if_right).norm() > 3 * (ended - expected).norm()


def test_weights_under_dales_law_never_change_sign():
    weight = normal(6, 3)
    free, lawful = (
        EulerCircuit(SHORT, constrain=constrain).run(weight, normal(20, 3, seed=5), rate=3e-3).weight
        for constrain in (lambda w, initial: w, keep_signs)
    )
    assert (free * weight < 0).any()
    assert not (lawful * weight < 0).any()


def test_plasticity_can_be_replaced():
    def frozen_first_neuron(above_bias, x, weight, initial, decay):
        pull = anti_hebbian(above_bias, x, weight, initial, decay)
        pull[0] = 0
        return pull

    weight = normal(4, 3)
    ended = EulerCircuit(SHORT, plasticity=frozen_first_neuron).run(weight, normal(5, 3), rate=1e-3).weight
    assert torch.equal(ended[0], weight[0])
    assert (ended[1:] != weight[1:]).all()


def test_wiring_for_other_neurons_is_refused():
    with pytest.raises(ValueError, match=r"shape \(inhibitory, neurons\) and .* got \(1, 5\) and \(4, 1\)"):
        EulerCircuit(excitation=torch.ones(1, 5), inhibition=torch.ones(4, 1))
    with pytest.raises(ValueError, match="weights of 4 neurons, but .* connects 5 and 4"):
        EulerCircuit(excitation=torch.ones(1, 5)).at_rest(torch.ones(4, 2))
    with pytest.raises(ValueError, match=r"`inhibition` must be a matrix of connections, got the shape \(4,\)"):
        EulerCircuit(inhibition=torch.ones(4))
    for patterns in (torch.ones(2), torch.ones(5, 3)):
        with pytest.raises(ValueError, match=r"`patterns` must have the shape \(presentations, ..., 2\)"):
            EulerCircuit().run(torch.ones(4, 2), patterns)
    with pytest.raises(ValueError, match="`delay_ms` must be a finite number, at least 0, got -1"):
        EulerCircuit(delay_ms=-1.0)
