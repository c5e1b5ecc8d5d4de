import math

import numpy as np
import pytest

from sleepconv.simulation.convergence import Convergence, NoisyConvergence
from sleepconv.simulation.theory import least_negative_log_snr_white

# Final −log SNR after 2,000 steps of the ideal rule for γ = .1, .01, .001.
FINAL = {3: [-4.84, -9.27, -13.85], 6: [-4.78, -9.21, -13.79], 9: [-4.70, -9.12, -13.40]}
# Mean −log SNR of the circuit (k = 3, γ = .01) after so many presentations.
CIRCUIT = {10: -0.6, 100: -2.5, 500: -5.5, 1000: -6.7, 2000: -6.8}


def mean_course(curve):
    return dict(zip(curve["steps"], np.mean(curve["negative_log_snr"], axis=0), strict=True))


@pytest.mark.parametrize("kernel_size", [3, 6, 9])
def test_the_ideal_rule_ends_where_it_is_known_to_end(kernel_size):
    curves = Convergence("hebbian", steps=2000, input_mean=1.0, kernel_sizes=(kernel_size,)).curves()
    finals = [mean_course(curve)[2000] for curve in curves]
    assert finals == pytest.approx(FINAL[kernel_size], abs=0.15)
    for curve, final in zip(curves, finals, strict=True):
        assert final == pytest.approx(curve["theory"]["ideal"], abs=0.6 if kernel_size == 9 else 0.15)
        assert mean_course(curve)[500] < -3.5  # nearly convolutional within a few hundred steps


def test_zero_mean_inputs_end_at_the_floor_that_the_paper_prints():
    curves = Convergence("hebbian", steps=2000, kernel_sizes=(3,), decays=(0.1, 0.01)).curves()
    for curve in curves:
        printed = least_negative_log_snr_white(decay=curve["decay"])
        assert mean_course(curve)[2000] == pytest.approx(printed, abs=0.15)
        assert curve["negative_log_pooled_snr"][-1] == pytest.approx(printed, abs=0.15)
        assert curve["preserved_mean"][-1] == pytest.approx(1)


def test_finite_inhibition_shrinks_the_mean_weight_on_the_way_to_its_closed_form():
    setup = Convergence("circuit", steps=300, inhibition=10.0, kernel_sizes=(3,), decays=(0.1,), runs=2, tau_ms=20.0)
    kept = setup.curves()[0]["preserved_mean"]
    assert kept[0] == 1
    assert 0.1 / (1 / 11 + 0.1) < kept[-1] < 0.95


def test_the_circuit_follows_the_course_that_the_paper_describes():
    setup = Convergence("circuit", steps=2000, inhibition=10.0, input_mean=0.0, kernel_sizes=(3,), decays=(0.01,))
    course = mean_course(setup.curves()[0])
    assert {step: course[step] for step in CIRCUIT if step in course} == {
        step: pytest.approx(value, abs=0.2) for step, value in CIRCUIT.items() if step in course
    }
    assert {100, 500, 1000, 2000} <= course.keys()


def test_the_circuit_reports_its_negative_rates():
    setup = Convergence("circuit", steps=300, inhibition=10.0, input_mean=0.0, kernel_sizes=(9,), decays=(0.01,))
    shares = setup.curves()[0]["negative_rates"]
    assert shares[0] == 0
    assert 0.05 < np.mean(shares[1:]) < 0.6


def test_a_seed_gives_the_same_curves_again_and_another_seed_others():
    setup = Convergence("hebbian", steps=20, kernel_sizes=(2,), runs=2, neurons=5)
    assert setup.curves() == setup.curves()
    assert setup.curves() != Convergence("hebbian", steps=20, kernel_sizes=(2,), runs=2, neurons=5, seed=1).curves()


def test_progress_is_told_once_per_sample():
    setup, calls = Convergence("hebbian", steps=30, kernel_sizes=(1, 2), runs=1, neurons=3), []
    setup.curves(advance=lambda: calls.append(1))
    assert len(calls) == setup.samples


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "instant", "steps": 5}, "'hebbian' or 'circuit', got 'instant'"),
        ({"rule": "circuit", "steps": 5}, "finite inhibition"),
        ({"rule": "hebbian", "steps": 0}, "steps=0"),
        ({"rule": "hebbian", "steps": 5, "inhibition": math.nan}, "`inhibition` must be a finite number"),
        ({"rule": "hebbian", "steps": 5, "decays": (0.1, math.inf)}, "`decays` must be a finite number"),
    ],
)
def test_setups_that_nothing_can_simulate_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Convergence(**options)


def test_theory_and_simulation_start_from_the_same_distance():
    [curve] = NoisyConvergence(steps=3, noises=(0.1,), runs=3, neurons=6).curves()
    assert np.mean(curve["error"], axis=0)[0] == pytest.approx(curve["bound"][0])


def test_floors_grow_with_the_noise():
    curves = NoisyConvergence(steps=1, noises=(0.0, 0.1, 0.3), runs=2, neurons=6).curves()
    floors = [curve["floor"] for curve in curves]
    assert floors[0] == 0
    assert floors == sorted(floors)


def test_setups_without_a_floor_or_a_course_of_1_over_t_are_refused():
    for decay in (0.0, 0.1):
        with pytest.raises(ValueError, match=r"rate·decay must exceed 1 .* got 0"):
            NoisyConvergence(decay=decay, rate=2.0)
    with pytest.raises(ValueError, match="`decay` must be a finite number, at least 0, got nan"):
        NoisyConvergence(decay=math.nan)
