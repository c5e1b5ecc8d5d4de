import math

import numpy as np
import pytest

from sleepconv.simulation.robustness import Robustness, _dale

SMALL = {"decays": (0.1, 0.03), "neurons": 20, "inputs": 3, "runs": 2, "steps": 400}


def sweep(against, *values, **options):
    curves = Robustness(against, values=values, **(SMALL | options)).curves()
    return {(curve["variant"], curve["decay"]): curve for curve in curves}


@pytest.mark.parametrize(
    ("against", "values"),
    [
        ("noise", (0.0, 0.3)),
        ("missing", (0.0, 0.5)),
        ("wrong", (0.0, 0.2)),
        ("inhibition", (0.0, 0.5)),
        ("dale", (0.5, 2.0)),
    ],
)
def test_simulations_end_at_the_closed_form(against, values):
    for curve in sweep(against, *values).values():
        for measure, within in {"negative_log_snr": 0.15, "preserved_mean": 0.03}.items():
            simulated = np.mean(curve[measure], axis=1)
            assert simulated == pytest.approx(curve["theory"][measure], abs=within), (measure, curve)


def test_noise_preserves_the_share_of_the_mean_that_the_theory_names():
    for (_, decay), curve in sweep("noise", 0.1, 0.3, 1.0, steps=1).items():
        expected = [decay / (decay + sigma**2 * (1 - 1 / 20)) for sigma in (0.1, 0.3, 1.0)]
        assert curve["theory"]["preserved_mean"] == pytest.approx(expected)


def test_finite_inhibition_preserves_the_share_of_the_mean_that_the_appendix_names():
    for (_, decay), curve in sweep("noise", 0.0, inhibition=10.0).items():
        [simulated] = np.mean(curve["preserved_mean"], axis=1)
        assert simulated == pytest.approx(decay / (1 / 11 + decay), abs=0.03)


def test_missing_connections_do_no_harm_if_the_others_make_up_for_them():
    curves = sweep("missing", 0.0, 0.5)
    snr, mean = (np.mean(curves["rescaled", 0.03][key], axis=1) for key in ("negative_log_snr", "preserved_mean"))
    assert snr[1] == pytest.approx(snr[0], abs=0.3)
    assert mean[1] == pytest.approx(1, abs=0.1)  # the neurons weigh differently in the new mean
    assert np.mean(curves["as they are", 0.03]["preserved_mean"][1]) < 0.2


def test_neurons_wired_to_another_grid_cost_the_mean_of_all():
    [right, wrong] = sweep("wrong", 0.0, 0.2)["", 0.03]["preserved_mean"]
    assert np.mean(right) == pytest.approx(1)
    assert np.mean(wrong) < 0.3


def test_differing_inhibition_bounds_the_snr_by_its_coefficient_of_variation():
    curve = sweep("inhibition", 0.1, 0.2, decays=(1e-4,), neurons=400, runs=2, steps=1)["", 1e-4]
    assert curve["theory"]["negative_log_snr"] == pytest.approx([2 * math.log(0.1), 2 * math.log(0.2)], abs=0.3)


def test_rectified_rates_share_as_linear_ones_unless_the_bias_is_zero():
    curves = sweep("rectified", 0.0, 0.5)
    silent, biased = np.mean(curves["rectified", 0.03]["negative_log_snr"], axis=1)
    linear = np.mean(curves["linear", 0.03]["negative_log_snr"], axis=1)
    assert curves["rectified", 0.03]["theory"] is None
    assert silent > -1
    assert biased == pytest.approx(linear[1], abs=0.2)


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_no_weight_is_ever_negative_under_dales_law(steps):
    setup = Robustness("dale", values=(0.0,), **(SMALL | {"steps": steps}))
    lawful, free = _dale(setup, 0.0, setup._start(0.0))
    assert setup._learn(lawful, setup._generator(0.0, 0)).min() >= 0
    assert setup._learn(free, setup._generator(0.0, 0)).min() < 0


def test_a_sweep_that_diverges_is_an_error():
    with pytest.raises(ValueError, match=r"weights diverge with decays=\(100.0,\).*smaller decays"):
        sweep("noise", 0.0, decays=(100.0,))


def test_a_seed_gives_the_same_curves_again_and_another_seed_others():
    options = SMALL | {"values": (0.3,), "steps": 5}
    assert Robustness("missing", **options).curves() == Robustness("missing", **options).curves()
    assert Robustness("missing", **options).curves() != Robustness("missing", **options, seed=1).curves()


def test_progress_is_told_once_per_value():
    calls = []
    setup = Robustness("noise", values=(0.0, 0.1), **(SMALL | {"steps": 1}))
    setup.curves(advance=lambda: calls.append(1))
    assert len(calls) == setup.samples == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"against": "time"}, "`against` must be one of noise, missing, .*, got 'time'"),
        ({"against": "noise", "values": (-0.1,)}, "`values` must be a finite number, at least 0, got -0.1"),
        ({"against": "missing", "values": (1.5,)}, "`values` must be .* at most 1, got 1.5"),
        ({"against": "noise", "decays": (0.0,)}, "`decays` must be above 0, got 0"),
        ({"against": "noise", "decays": (math.nan,)}, "`decays` must be a finite number"),
        ({"against": "noise", "inhibition": -1.0}, "`inhibition` must be a finite number, at least 0"),
        ({"against": "noise", "neurons": 1}, "`neurons` must be an int, at least 2, got 1"),
    ],
)
def test_sweeps_that_nothing_can_simulate_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Robustness(**options)
