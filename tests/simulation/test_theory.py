import math

import pytest
import torch

from sleepconv.simulation.theory import (
    fixed_point,
    fixed_point_white,
    lateral_fixed_point,
    least_negative_log_snr,
    least_negative_log_snr_white,
    noisy_error_bound,
    noisy_fixed_point,
    rate_eigenvalues,
    steady_response,
)


def weights_and_covariance(neurons=6, inputs=4):
    patterns = torch.randn(12, inputs, dtype=torch.float64)
    return 1 + torch.randn(neurons, inputs, dtype=torch.float64), patterns.T @ patterns / 12


def test_fixed_point_is_equation_5():
    weights, covariance = weights_and_covariance()
    eye = torch.eye(4, dtype=torch.float64)
    expected = (covariance @ weights.mean(0) + 0.3 * weights) @ torch.linalg.inv(covariance + 0.3 * eye)
    torch.testing.assert_close(fixed_point(weights, covariance, decay=0.3), expected)


def test_biased_fixed_point_is_the_appendix_formula():
    weights, covariance = weights_and_covariance()
    eye, decay, alpha = torch.eye(4, dtype=torch.float64), 0.3, 5.0
    shrunk = torch.linalg.inv(covariance / (1 + alpha) + decay * eye) @ weights.mean(0)
    mean_part = decay * alpha / (1 + alpha) * covariance @ shrunk
    expected = (mean_part + decay * weights) @ torch.linalg.inv(covariance + decay * eye)
    torch.testing.assert_close(fixed_point(weights, covariance, decay=decay, inhibition=alpha), expected)
    mean = fixed_point(weights, covariance, decay=decay, inhibition=alpha).mean(0)
    torch.testing.assert_close(mean, decay * shrunk)


@pytest.mark.parametrize("inhibition", [None, 0.0, 10.0])
def test_white_inputs_give_the_printed_special_case(inhibition):
    weights, _ = weights_and_covariance()
    general = fixed_point(weights, torch.eye(4, dtype=torch.float64), decay=0.05, inhibition=inhibition)
    torch.testing.assert_close(general, fixed_point_white(weights, decay=0.05, inhibition=inhibition))


def test_strong_inhibition_approaches_perfect_inhibition():
    weights, covariance = weights_and_covariance()
    strong = fixed_point(weights, covariance, decay=0.1, inhibition=1e9)
    torch.testing.assert_close(strong, fixed_point(weights, covariance, decay=0.1), rtol=1e-6, atol=1e-6)


def test_without_decay_weights_share_only_where_there_are_inputs():
    weights, _ = weights_and_covariance()
    seen = torch.diag(torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64))
    settled = fixed_point(weights, seen, decay=0.0)
    torch.testing.assert_close(settled[:, :2], weights[:, :2].mean(0).expand(6, 2))
    torch.testing.assert_close(settled[:, 2:], weights[:, 2:])


def test_the_least_snr_is_the_printed_one_for_many_neurons_and_white_inputs():
    weights = 1 + torch.randn(200_000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    least = least_negative_log_snr(weights, torch.eye(3, dtype=torch.float64), decay=0.01)
    assert least == pytest.approx(least_negative_log_snr_white(decay=0.01), abs=0.02)
    assert least_negative_log_snr_white(decay=0.0) == -math.inf


def test_equal_weights_reach_minus_infinity():
    weights = torch.ones(5, 3)
    assert least_negative_log_snr(weights, torch.eye(3), decay=0.0) == -math.inf


@pytest.mark.parametrize("inhibition", [0.0, 10.0, 1e4])
def test_rate_eigenvalues_are_those_of_the_circuit_and_stable(inhibition):
    neurons, tau = 5, 30.0
    jacobian = -torch.eye(neurons + 1, dtype=torch.float64)
    jacobian[:-1, -1], jacobian[-1, :-1] = -inhibition, 1 / neurons
    expected = torch.linalg.eigvals(jacobian / tau)
    ours = rate_eigenvalues(inhibition=inhibition, tau_ms=tau)
    assert all((expected - value).abs().min() < 1e-8 for value in ours)
    assert all((ours - value).abs().min() < 1e-8 for value in expected)
    assert (ours.real < 0).all()


def test_noisy_fixed_point_solves_the_mean_dynamics():
    weights, covariance = weights_and_covariance()
    decay, sigma = 0.2, 0.7
    settled = noisy_fixed_point(weights, covariance, decay=decay, noise=sigma)
    mean, pull = settled.mean(0), sigma**2 * (1 - 1 / 6)
    drift = (settled - mean) @ covariance + pull * settled + decay * (settled - weights)
    torch.testing.assert_close(drift, torch.zeros_like(drift), rtol=0, atol=1e-12)
    noiseless = noisy_fixed_point(weights, covariance, decay=decay, noise=0.0)
    torch.testing.assert_close(noiseless, fixed_point(weights, covariance, decay=decay))


def test_any_lateral_connections_include_the_papers_special_cases():
    weights, covariance = weights_and_covariance()
    eye, mean = torch.eye(6, dtype=torch.float64), torch.full((6, 6), 1 / 6, dtype=torch.float64)
    perfect, finite = eye - mean, steady_response(mean[:1], torch.full((6, 1), 5.0, dtype=torch.float64))
    torch.testing.assert_close(
        lateral_fixed_point(weights, covariance, perfect, decay=0.3), fixed_point(weights, covariance, decay=0.3)
    )
    torch.testing.assert_close(
        lateral_fixed_point(weights, covariance, finite, decay=0.3),
        fixed_point(weights, covariance, decay=0.3, inhibition=5.0),
    )
    torch.testing.assert_close(
        lateral_fixed_point(weights, covariance, perfect, decay=0.3, noise=0.7),
        noisy_fixed_point(weights, covariance, decay=0.3, noise=0.7),
    )


def test_lateral_connections_with_which_weights_grow_without_bound_are_refused():
    weights, covariance = weights_and_covariance()
    with pytest.raises(ValueError, match="do not settle"):
        lateral_fixed_point(weights, covariance, -torch.eye(6, dtype=torch.float64), decay=0.01)
    with pytest.raises(ValueError, match="`decay` must be above 0"):
        lateral_fixed_point(weights, covariance, torch.eye(6, dtype=torch.float64), decay=0.0)


def test_the_noisy_bound_starts_at_the_squared_distance_and_falls_to_two_variances_over_decay():
    weights, covariance = weights_and_covariance()
    rates = (5 / (step + 20_000) for step in range(2_000_000))
    bound = noisy_error_bound(weights, covariance, rates, decay=1.0, noise=0.1, fourth_moment=50.0)
    settled = fixed_point(weights, covariance, decay=1.0)
    assert bound[0] == pytest.approx(float((weights - settled).square().sum()))
    assert bound[-1] == pytest.approx(2 * 0.1**2 * float(settled.square().sum()), rel=0.2)


def test_a_covariance_that_is_none_is_refused():
    weights, _ = weights_and_covariance(inputs=2)
    with pytest.raises(ValueError, match=r"positive semidefinite, .* got one with the eigenvalue -1"):
        fixed_point(weights, torch.diag(torch.tensor([1.0, -1.0])), decay=0.1)
    with pytest.raises(ValueError, match="symmetric"):
        fixed_point(weights, torch.tensor([[1.0, 2.0], [0.0, 1.0]]), decay=0.1)


def test_noise_needs_decay_and_strengths_are_not_negative():
    weights, covariance = weights_and_covariance()
    with pytest.raises(ValueError, match="`decay` must be above 0 if inputs are noisy"):
        noisy_fixed_point(weights, covariance, decay=0.0, noise=0.1)
    with pytest.raises(ValueError, match=r"`decay` must be a finite number, at least 0, got -0\.1"):
        fixed_point(weights, covariance, decay=-0.1)
    with pytest.raises(ValueError, match="`inhibition` must be .* at least 0, or None for perfect inhibition"):
        fixed_point(weights, covariance, decay=0.1, inhibition=-1.0)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, "0.1", torch.ones(2)], ids=str)
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda w, c, wrong: fixed_point(w, c, decay=wrong), "decay"),
        (lambda w, c, wrong: fixed_point(w, c, decay=0.1, inhibition=wrong), "inhibition"),
        (lambda w, c, wrong: fixed_point_white(w, decay=wrong), "decay"),
        (lambda w, c, wrong: fixed_point_white(w, decay=0.1, inhibition=wrong), "inhibition"),
        (lambda w, c, wrong: least_negative_log_snr(w, c, decay=0.1, inhibition=wrong), "inhibition"),
        (lambda w, c, wrong: least_negative_log_snr_white(decay=wrong), "decay"),
        (lambda w, c, wrong: rate_eigenvalues(inhibition=wrong, tau_ms=1.0), "inhibition"),
        (lambda w, c, wrong: rate_eigenvalues(inhibition=1.0, tau_ms=wrong), "tau_ms"),
        (lambda w, c, wrong: noisy_fixed_point(w, c, decay=wrong, noise=0.1), "decay"),
        (lambda w, c, wrong: noisy_fixed_point(w, c, decay=0.1, noise=wrong), "noise"),
        (lambda w, c, wrong: noisy_error_bound(w, c, [wrong], decay=0.1, noise=0.1, fourth_moment=1.0), "rates"),
        (lambda w, c, wrong: noisy_error_bound(w, c, [], decay=0.1, noise=0.1, fourth_moment=wrong), "fourth_moment"),
    ],
)
def test_what_is_no_finite_number_is_refused_by_name(function, name, wrong):
    with pytest.raises(ValueError, match=f"`{name}` must be a finite number"):
        function(*weights_and_covariance(), wrong)
