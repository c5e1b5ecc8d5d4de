"""Section 4 and the appendix: where the Hebbian rule ends, ideal, biased and noisy."""

import numpy as np
import pytest
import torch

from sleepconv.functional import hebbian_step_, weight_snr
from sleepconv.simulation.convergence import Convergence, NoisyConvergence, one_thread
from sleepconv.simulation.theory import fixed_point


def settle(initial, patterns, *, decay, inhibition=None, steps=6000):
    """Run the rule to its end, all patterns in each step, with a rate just below the stable one."""
    weight, velocity = initial.clone(), torch.zeros_like(initial)
    largest = float(torch.linalg.matrix_norm(patterns.mT @ patterns / patterns.shape[1], ord=2).max())
    options = {"rate": 1 / (largest + decay), "decay": decay, "momentum": 0.9, "inhibition": inhibition}
    with one_thread():
        for _ in range(steps):
            hebbian_step_(weight, velocity, initial, patterns, **options)
    return weight


def some_grids(channels=2):
    """Three grids with their own patterns, correlated and of unequal strength."""
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(3, 5, 5, dtype=torch.float64, generator=generator)
    patterns = 0.5 + torch.randn(3, 8, 5, dtype=torch.float64, generator=generator) @ mixing
    weights = 1 + torch.randn(3, 7, channels, 5, dtype=torch.float64, generator=generator)
    return weights, patterns, patterns.mT @ patterns / 8


@pytest.mark.parametrize("decay", [0.1, 0.01])
@pytest.mark.parametrize("inhibition", [None, 10.0])
def test_hebbian_dynamics_settle_at_the_closed_form(decay, inhibition):
    initial, patterns, covariance = some_grids()
    settled = settle(initial, patterns, decay=decay, inhibition=inhibition)
    for channel in range(initial.shape[2]):
        expected = fixed_point(initial[:, :, channel], covariance, decay=decay, inhibition=inhibition)
        error = (settled[:, :, channel] - expected).norm() / expected.norm()
        assert error <= 1e-6


def test_with_small_decay_neurons_end_at_their_initial_mean():
    initial, patterns, _ = some_grids()
    settled = settle(initial, patterns, decay=1e-3)
    means = initial.mean(dim=1, keepdim=True).expand_as(initial)
    spread = (initial - means).norm()
    assert (settled - means).norm() < 0.05 * spread


def test_the_biased_rule_shrinks_the_mean_as_the_appendix_says():
    initial, patterns, covariance = some_grids(channels=1)
    decay, alpha = 0.1, 10.0
    settled = settle(initial, patterns, decay=decay, inhibition=alpha)
    eye = torch.eye(5, dtype=torch.float64)
    mean = initial.mean(dim=(1, 2))
    expected = decay * torch.linalg.solve(covariance / (1 + alpha) + decay * eye, mean)
    torch.testing.assert_close(settled.mean(dim=(1, 2)), expected, rtol=1e-6, atol=1e-8)
    assert (expected.norm(dim=1) < mean.norm(dim=1)).all()


def test_stopping_early_helps_with_finite_inhibition():
    options = {"steps": 4000, "input_mean": 0.0, "kernel_sizes": (3,), "decays": (0.01,), "runs": 3}
    for rule in ("hebbian", "circuit"):
        [curve] = Convergence(rule, inhibition=10.0, **options).curves()
        course = np.mean(curve["negative_log_snr"], axis=0)
        best = int(np.argmin(course))
        assert 500 < curve["steps"][best] < 2500
        assert course[-1] > course[best] + 0.3
    [ideal] = Convergence("hebbian", **options).curves()
    course = np.mean(ideal["negative_log_snr"], axis=0)
    assert course[-1] < course.min() + 0.1


def test_noise_leaves_the_floor_of_the_mean_dynamics_below_the_theorems_bound():
    setup = NoisyConvergence(steps=10_000, noises=(0.0, 0.3), runs=3, neurons=30, kernel_size=2, delay=500)
    noiseless, noisy = setup.curves()
    errors = np.mean(noisy["error"], axis=0)
    assert errors[-1] == pytest.approx(noisy["floor"], rel=0.1)
    assert np.all(errors <= np.array(noisy["bound"]) * (1 + 1e-9))
    assert np.mean(noiseless["error"], axis=0)[-1] < 0.05 * noisy["floor"]


def test_without_noise_the_error_falls_as_one_over_t():
    setup = NoisyConvergence(steps=10_000, noises=(0.0,), runs=5, neurons=20, kernel_size=2, delay=100)
    [curve] = setup.curves()
    steps, errors = np.array(curve["steps"]), np.mean(curve["error"], axis=0)
    late = steps > 1000
    slope = np.polyfit(np.log(steps[late]), np.log(errors[late]), 1)[0]
    assert slope == pytest.approx(-1, abs=0.25)


def test_one_input_grid_at_a_time_shares_once_all_directions_are_spanned():
    initial = 1 + torch.randn(1, 20, 1, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one_hot = torch.eye(9, dtype=torch.float64)[None]
    before = weight_snr(initial[0, :, 0])
    some = settle(initial, one_hot[:, :8], decay=1e-3)[0, :, 0]
    assert weight_snr(some[:, :8]) > 1e3 * before
    torch.testing.assert_close(some[:, 8], initial[0, :, 0, 8])
    assert weight_snr(settle(initial, one_hot, decay=1e-3)[0, :, 0]) > 1e3 * before
