import dataclasses
import math

import pytest
import torch
from scipy.integrate import solve_ivp

from sleepconv.simulation.circuit import (
    CircuitConstants,
    CircuitState,
    euler_rates,
    present_,
    presentation_maps,
    rate_fixed_point,
    steady_presentation_maps,
)


def simulate_step_by_step(weight, patterns, learning_rates, decay, constants):
    """Eq. 8 with plasticity, written down naively for weights (neurons, inputs)."""
    initial, weight = weight, weight.clone()
    velocity = torch.zeros_like(weight)
    rates, inhibitory = torch.full_like(weight[:, 0], constants.bias), torch.zeros(()).to(weight)
    fraction = constants.step_ms / constants.tau_ms
    for x, rates_of_presentation in zip(patterns, learning_rates, strict=True):
        for learning_rate in rates_of_presentation:
            excite = -rates + weight @ x - constants.inhibition * inhibitory + constants.bias
            inhibit = -inhibitory + rates.mean() - constants.bias
            pull = (rates - constants.bias)[:, None] * x + decay * (weight - initial)
            velocity = constants.momentum * velocity + pull
            weight = weight - learning_rate * velocity
            rates, inhibitory = rates + fraction * excite, inhibitory + fraction * inhibit
    return weight, rates, inhibitory


@pytest.mark.parametrize("constants", [CircuitConstants(), CircuitConstants(3.0, 20.0, 0.5, 2.0, 60.0, 0.5)])
def test_whole_presentations_equal_the_circuit_simulated_step_by_step(constants):
    grids, neurons, channels, inputs, presentations = 3, 7, 2, 4, 6
    weight = 1 + torch.randn(grids, neurons, channels, inputs, dtype=torch.float64)
    patterns = torch.randn(presentations, grids, inputs, dtype=torch.float64)
    learning_rates = 3e-4 * torch.rand(presentations, constants.steps, dtype=torch.float64)
    decay = torch.tensor([0.0, 0.1, 0.5], dtype=torch.float64)

    state = CircuitState.at_rest(weight)
    maps = presentation_maps(patterns.square().sum(dim=-1), learning_rates, decay=decay, constants=constants)
    for presentation, pattern in enumerate(patterns):
        present_(state, pattern, maps[presentation])

    for g in range(grids):
        for c in range(channels):
            expected = simulate_step_by_step(weight[g, :, c], patterns[:, g], learning_rates, decay[g], constants)
            torch.testing.assert_close(state.weight[g, :, c], expected[0], rtol=1e-12, atol=1e-12)
            rates = constants.bias + state.above_bias[g, :, c]
            torch.testing.assert_close(rates, expected[1], rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(state.inhibitory[g, c], expected[2], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("constants", [CircuitConstants(1000.0, 30.0, 1.0, 0.05, momentum=0.0), CircuitConstants(3.0)])
def test_presentations_at_a_steady_rate_equal_those_at_any(constants):
    squared_norm, decay = torch.rand(5, 3, dtype=torch.float64), torch.tensor([0.0, 0.1, 0.5], dtype=torch.float64)
    rates = torch.full((5, constants.steps), 0.5 * constants.fraction, dtype=torch.float64)
    maps = presentation_maps(squared_norm, rates, decay=decay, constants=constants)
    steady = steady_presentation_maps(squared_norm, float(rates[0, 0]), decay=decay, constants=constants)
    torch.testing.assert_close(steady.motion, maps.motion, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(steady.carry, maps.carry, rtol=1e-10, atol=1e-10)
    single = steady_presentation_maps(
        squared_norm.float(), float(rates[0, 0]), decay=decay.float(), constants=constants
    )
    torch.testing.assert_close(single.motion, maps.motion.float(), rtol=1e-5, atol=1e-6)


def exact_course(drive, times, constants):
    def derivative(_, state):
        rates, inhibitory = state[:-1], state[-1]
        excite = -rates + drive.numpy() - constants.inhibition * inhibitory + constants.bias
        return [
            *(excite / constants.tau_ms),
            (-inhibitory + rates.mean() - constants.bias) / constants.tau_ms,
        ]

    start = [constants.bias] * len(drive) + [0.0]
    solved = solve_ivp(derivative, (0, times[-1]), start, t_eval=times, rtol=1e-11, atol=1e-12)
    return torch.from_numpy(solved.y[:-1].T)


def largest_error(drive, step_ms):
    constants = CircuitConstants(step_ms=step_ms)
    rates, _ = euler_rates(drive, steps=constants.steps, constants=constants)
    times = [step_ms * step for step in range(constants.steps + 1)]
    exact = exact_course(drive, times, constants)
    return float((rates - exact).abs().max() / exact.abs().max())


def test_euler_steps_approach_an_independent_solver_to_first_order():
    drive = 1 + torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    errors = [largest_error(drive, step_ms) for step_ms in (1.0, 0.5, 0.25)]
    assert errors[0] <= 0.05
    assert errors[0] / errors[1] == pytest.approx(2, abs=0.15)
    assert errors[1] / errors[2] == pytest.approx(2, abs=0.1)


def plastic_error(step_ms):
    """Relative error of plastic weights after one presentation, against scipy."""
    generator = torch.Generator().manual_seed(1)
    constants, per_ms, decay = CircuitConstants(step_ms=step_ms, momentum=0.0), 2e-3, 0.1
    weight = 1 + torch.randn(6, 3, dtype=torch.float64, generator=generator)
    x = torch.randn(3, dtype=torch.float64, generator=generator)

    def derivative(_, state):
        w, r, inhibitory = state[:18].reshape(6, 3), state[18:24], state[24]
        excite = -r + w @ x.numpy() - constants.inhibition * inhibitory + constants.bias
        pull = (r - constants.bias)[:, None] * x.numpy() + decay * (w - weight.numpy())
        inhibit = -inhibitory + r.mean() - constants.bias
        return [*(-per_ms * pull).ravel(), *(excite / constants.tau_ms), inhibit / constants.tau_ms]

    start = [*weight.numpy().ravel(), *[constants.bias] * 6, 0.0]
    solved = solve_ivp(derivative, (0, constants.presentation_ms), start, rtol=1e-11, atol=1e-12)
    exact = torch.from_numpy(solved.y[:18, -1].reshape(6, 3))

    learning_rates = torch.full((constants.steps,), per_ms * step_ms, dtype=torch.float64)
    decays = torch.tensor([decay], dtype=torch.float64)
    maps = presentation_maps(x.square().sum()[None], learning_rates, decay=decays, constants=constants)
    state = present_(CircuitState.at_rest(weight[None, :, None]), x[None], maps)
    return float((state.weight[0, :, 0] - exact).norm() / (exact - weight).norm())


def test_plastic_weights_approach_an_independent_solver_to_first_order():
    errors = [plastic_error(step_ms) for step_ms in (1.0, 0.5, 0.25)]
    assert errors[0] <= 0.05
    assert errors[0] / errors[1] == pytest.approx(2, abs=0.15)
    assert errors[1] / errors[2] == pytest.approx(2, abs=0.1)


def test_without_inhibition_each_neuron_follows_its_own_drive():
    drive = torch.tensor([1.0, -2.0])
    torch.testing.assert_close(rate_fixed_point(drive, inhibition=0.0, bias=0.5), drive + 0.5)


def _short(value):
    return str(value)[:9]


@pytest.mark.parametrize("inhibition", [-1.0, math.nan, math.inf, 10**400, torch.tensor([0.0, -1.0])], ids=_short)
def test_rates_do_not_settle_with_inhibition_below_zero_or_infinite(inhibition):
    with pytest.raises(ValueError, match="`inhibition` must be .* at least 0, got"):
        rate_fixed_point(torch.tensor([1.0, 3.0]), inhibition=inhibition, bias=1.0)


def test_inhibition_is_not_rounded_to_single_precision():
    rates = rate_fixed_point(torch.ones(1, dtype=torch.float64), inhibition=0.1, bias=0.0)
    assert float(rates) == pytest.approx(1 / 1.1, rel=1e-15)


def test_steps_too_long_for_the_inhibition_are_refused_with_the_longest_that_works():
    with pytest.raises(ValueError, match=r"between 0 and 0\.594"):
        CircuitConstants(inhibition=100.0)
    for name, value in [("inhibition", -1.0), ("tau_ms", 0.0), ("momentum", 1.0), ("step_ms", 0.0)]:
        with pytest.raises(ValueError, match=f"`{name}` must be .* got {value}"):
            CircuitConstants(**{name: value})


@pytest.mark.parametrize("milliseconds", [0.0, 0.1, -150.0, 1e6, 1e308])
def test_presentations_of_less_than_a_step_or_absurdly_many_are_refused(milliseconds):
    with pytest.raises(ValueError, match="`presentation_ms` must be between one and 100,000 steps of 1.0 ms, got"):
        CircuitConstants(presentation_ms=milliseconds)


@pytest.mark.parametrize("step_ms", [5e-324, 1e-9])
def test_steps_so_short_that_a_presentation_does_not_end_are_refused(step_ms):
    with pytest.raises(ValueError, match="between one and 100,000 steps"):
        CircuitConstants(step_ms=step_ms)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(CircuitConstants)])
@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, "10", None, torch.ones(2)], ids=_short)
def test_every_constant_is_one_finite_number(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a finite number,.* got"):
        CircuitConstants(**{name: value})


@pytest.mark.parametrize("shape", [(5,), (3, 5), (3, 1)])
def test_neurons_that_are_inhibited_differently_settle_where_the_simulated_circuit_does(shape):
    drive, inhibition = 1 + torch.randn(3, 5, dtype=torch.float64), 4 * torch.rand(shape)
    rates, inhibitory, fraction = torch.full_like(drive, 0.5), torch.zeros(3, 1, dtype=torch.float64), 1 / 30
    for _ in range(1500):
        excite = -rates + drive - inhibition * inhibitory + 0.5
        inhibit = -inhibitory + rates.mean(dim=-1, keepdim=True) - 0.5
        rates, inhibitory = rates + fraction * excite, inhibitory + fraction * inhibit
    torch.testing.assert_close(rate_fixed_point(drive, inhibition=inhibition, bias=0.5), rates, rtol=0, atol=1e-9)
