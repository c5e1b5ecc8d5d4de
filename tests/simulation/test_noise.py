import math

import numpy as np
import pytest

from sleepconv.simulation.convergence import NoisyConvergence


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
