"""What sleep does to a model, measured and drawn; and theory beside it."""

import math

import pytest
import torch
from torch import nn

from sleepconv import Sleep, analysis, to_locally_connected
from sleepconv.nn import LocallyConnected1d, LocallyConnected2d
from sleepconv.sleep import Circuit, Hebbian, Instant


def layer(**options) -> LocallyConnected2d:
    return LocallyConnected2d(2, 4, 3, input_size=11, **options)


def network() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    return to_locally_connected(model, torch.zeros(1, 1, 13, 13))


RULES = {
    "one_grid": Hebbian(decay=1e-2, steps=3),
    "one_grid_with_momentum": Hebbian(decay=1e-2, steps=5, momentum=0.5),
    "independent": Hebbian(decay=1e-2, patterns="independent", steps=5),
    "disinhibited": Hebbian(decay=1e-2, patterns="disinhibited", steps=2),
    "spontaneous": Hebbian(decay=1e-2, patterns="spontaneous", steps=3),
    "circuit": Circuit(presentations=5, presentation_ms=20),
}


@pytest.mark.parametrize("name", RULES)
def test_a_curve_goes_from_the_weights_before_a_sleep_to_those_after_it_and_the_model_stays(name):
    rule, model = RULES[name], network()
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    before = analysis.negative_log_snrs(model)
    curves = analysis.sleep_curves(rule, model)
    for key, value in model.state_dict().items():
        assert torch.equal(value, weights[key])
    rule(model)
    after = analysis.negative_log_snrs(model, grids=Sleep(model, every=1, rule=rule).grids)
    steps = getattr(rule, "presentations", getattr(rule, "steps", None))
    for key, curve in curves.items():
        assert curve.steps[0] == 0
        assert curve.steps[-1] == steps
        assert curve.values[0] == pytest.approx(before[key], abs=1e-3)
        assert curve.values[-1] == pytest.approx(after[key], abs=1e-3)
    assert len(curves) == len(before)


def test_the_pooled_curve_ends_at_the_pooled_measure():
    one, rule = layer(), Hebbian(decay=1e-2, patterns="independent", steps=5)
    curve = analysis.sleep_curves(rule, one, pooled=True)[""]
    assert curve.values[0] == pytest.approx(analysis.negative_log_snrs(one, pooled=True)[""], abs=1e-3)
    assert curve.values[-1] == pytest.approx(analysis.negative_log_snrs(rule(one), pooled=True)[""], abs=1e-3)


def test_one_weight_on_which_all_neurons_agree_decides_eq_6_but_not_the_pooled_measure():
    one = layer()
    untouched = analysis.negative_log_snrs(one, pooled=True)[""]
    with torch.no_grad():
        one.weight[..., 0, 0, 0, 0] = 1e-9
    assert analysis.negative_log_snrs(one)[""] == -math.inf
    assert analysis.negative_log_snrs(one, pooled=True)[""] == pytest.approx(untouched, abs=0.2)


def test_one_grid_patterns_have_the_covariance_one_and_random_ones_tend_to_it():
    exact = analysis.pattern_covariances(Hebbian(steps=2), layer(groups=2))[""]
    torch.testing.assert_close(exact, torch.eye(9, dtype=torch.float64).expand(9, 2, 9, 9), rtol=0, atol=1e-6)
    many = Hebbian(patterns="independent", patterns_per_step=500, steps=20)
    random = analysis.pattern_covariances(many, layer())[""]
    assert random.shape == (9, 1, 18, 18)
    torch.testing.assert_close(random, torch.eye(18, dtype=torch.float64).expand_as(random), rtol=0, atol=0.07)


def test_the_circuits_patterns_have_the_input_power_that_it_was_given():
    one, rule = (
        LocallyConnected1d(4, 1, 3, input_size=9),
        Circuit(presentations=300, presentation_ms=2, input_power=6.0),
    )
    covariance = analysis.pattern_covariances(rule, one)[""]
    assert covariance.diagonal(dim1=-2, dim2=-1).sum(-1).mean() == pytest.approx(6.0, rel=0.1)


@pytest.mark.parametrize("inhibition", [None, 20.0])
def test_a_long_sleep_settles_where_theory_says_from_the_covariance_of_its_patterns(inhibition):
    torch.manual_seed(3)
    one = LocallyConnected1d(1, 2, 3, input_size=24)
    with torch.no_grad():
        one.weight.add_(1.0)
    rule = Hebbian(decay=0.1, patterns="independent", patterns_per_step=400, rate=0.2, steps=120, inhibition=inhibition)
    predicted = analysis.predicted_negative_log_snrs(rule, one)[""]
    reached = analysis.negative_log_snrs(rule(one))[""]
    assert reached == pytest.approx(predicted, abs=0.05)
    assert predicted < -2


def test_patterns_that_span_little_predict_that_a_layer_shares_little():
    model = network()
    chain = Hebbian(decay=1e-3, patterns="layer_by_layer", patterns_per_step=16, steps=5)
    assert torch.linalg.matrix_rank(analysis.pattern_covariances(chain, model)["0"][0, 0]) == 9
    predicted = analysis.predicted_negative_log_snrs(chain, model)
    assert predicted["2"] > predicted["0"] + 1


def test_a_sleep_in_ones_own_loop_can_be_watched_and_the_last_one_counts():
    model = network()
    sleep = Sleep(model, every=2, rule=Hebbian(decay=1e-2, steps=4))
    with analysis.watch(model, every=2) as courses:
        for _ in range(4):
            sleep.step()
    assert courses["0"].curve().steps == [0, 2, 4]
    assert courses["0"].curve().values[-1] == pytest.approx(analysis.negative_log_snrs(model)["0"], abs=1e-3)
    with pytest.raises(ValueError, match="covariance=True"):
        _ = courses["0"].covariance


def test_records_of_a_sleep_become_a_sawtooth():
    model = network()
    sleep = Sleep(model, every=1, statistics=True)
    for _ in range(2):
        with torch.no_grad():
            model[0].weight.add_(torch.randn_like(model[0].weight))
        sleep.step()
    curve = analysis.snr_curves(sleep.records)["0"]
    assert curve.steps == [1, 1, 2, 2]
    assert curve.values[1::2] == [-math.inf, -math.inf]
    assert all(map(math.isfinite, curve.values[::2]))
    assert analysis.before_sleep(sleep.records)["0"].steps == [1, 2]


def test_filters_after_a_sleep_are_the_mean_of_their_grid():
    one = LocallyConnected2d(3, 8, 3, input_size=20)
    before, after = analysis.filters_before_and_after(one, neurons=100, channels=8)
    torch.testing.assert_close(after[:, 0], after[:, -1])
    row = one.grids[9] == one.grids[9, 0]
    assert torch.equal(before, one.weight.detach()[9, row].transpose(0, 1))
    assert analysis.first_layer_with_filters(nn.Sequential(nn.ReLU(), one)) == "1"


def test_everything_can_be_drawn_on_ones_own_axes_or_on_new_ones():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    one = layer()
    curves = {"conv": analysis.Curve([0, 1, 2], [1.0, -3.0, -math.inf])}
    figure, axes = pyplot.subplots(1, 3)
    assert analysis.draw_curves(curves, axes[0]) is axes[0]
    assert "−∞" in [label.get_text() for label in axes[0].get_yticklabels()]
    assert axes[0].get_ylabel() == "−log SNR"
    assert analysis.draw_filters(analysis.grid_filters(one), axes[1], title="before").get_title() == "before"
    analysis.draw_covariance(torch.eye(4), axes[2])
    assert analysis.draw_curves(curves).figure is not figure
    pyplot.close("all")


def test_what_cannot_be_watched_or_shown_is_refused_by_name():
    with pytest.raises(ValueError, match="Instant.* takes no steps"):
        analysis.sleep_curves(Instant(), layer())
    with pytest.raises(TypeError, match="LocallyConnected2d.*got Linear"):
        analysis.grid_filters(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="no locally connected layer"):
        analysis.negative_log_snrs(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="`every` must be an int, at least 1"), analysis.watch(layer(), every=0):
        pass
