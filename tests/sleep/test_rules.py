"""The rules on tensors, layers and models."""

import copy
import itertools
import math
import signal
import sys

import pytest
import torch
from torch import nn

from sleepconv import Sleep
from sleepconv.functional import share_weights_, weight_snr
from sleepconv.nn import LocallyConnected1d, LocallyConnected2d
from sleepconv.simulation.theory import fixed_point
from sleepconv.sleep import Circuit, DivergenceError, Hebbian, Instant
from sleepconv.sleep.pools import LayerPools

LAYERS = {
    "plain": lambda: LocallyConnected2d(4, 6, 3, input_size=10, padding=1),
    "grouped": lambda: LocallyConnected2d(4, 6, (3, 2), input_size=(9, 8), padding=1, groups=2),
}


def test_one_input_grid_at_a_time_ends_at_the_closed_form_for_slow_learning():
    layer = LocallyConnected2d(2, 3, 3, input_size=9, padding=1, dtype=torch.float64)
    grids, initial = layer.grids, layer.weight.detach().clone()
    inputs = 18
    Hebbian(decay=0.1, rate=0.01 / inputs, steps=1500)(layer)
    for grid in grids.unique():
        pool = initial[grids == grid].flatten(2).transpose(0, 1)
        expected = fixed_point(pool, torch.eye(inputs, dtype=torch.float64), decay=0.1)
        ours = layer.weight.detach()[grids == grid].flatten(2).transpose(0, 1)
        torch.testing.assert_close(ours, expected, rtol=0, atol=5e-3 * float(expected.abs().max()))


def test_sweeping_in_closed_form_equals_presenting_one_grid_after_the_other():
    weight = torch.randn(5, 2, 4, dtype=torch.float64)
    grids = torch.zeros(5, dtype=torch.int64)
    for inhibition in (None, 3.0):
        rule = Hebbian(decay=0.1, rate=0.05, steps=3, inhibition=inhibition)
        ours, naive, initial = rule(weight.clone(), grids), weight.clone(), weight
        kappa = 1 if inhibition is None else inhibition / (1 + inhibition)
        for _ in range(3):
            for j in range(4):
                change = -0.1 * (naive - initial)
                responses = 2 * naive[..., j]
                change[..., j] -= 2 * (responses - kappa * responses.mean(0))
                naive = naive + 0.05 * change
        torch.testing.assert_close(ours, naive)


def test_a_step_on_one_grid_averages_over_as_many_patterns_as_was_said():
    weight, grids = torch.randn(5, 2, 4, dtype=torch.float64), torch.zeros(5, dtype=torch.int64)

    def slept(**options):
        return Hebbian(decay=0.1, rate=0.05, **options)(weight.clone(), grids)

    torch.testing.assert_close(slept(patterns_per_step=1, steps=12), slept(steps=3))
    expected = weight.clone()
    expected[..., :2] -= 0.05 * 2 * (weight - weight.mean(0))[..., :2]  # x² = 4 for each of two patterns
    torch.testing.assert_close(slept(patterns_per_step=2, steps=1), expected)


def test_the_default_rate_is_stable_for_512_channels():
    layer = LocallyConnected1d(512, 2, 3, input_size=6, padding=1)
    before = weight_snr(layer.weight, layer.grids)
    for momentum in (0.0, 0.9):
        Hebbian(patterns="independent", momentum=momentum, steps=10, patterns_per_step=256)(layer)
    assert weight_snr(layer.weight, layer.grids) > before


@pytest.mark.parametrize("patterns", ["one_grid", "independent"])
def test_sleep_stops_at_the_snr_that_was_asked_for(patterns):
    layer, rule = LAYERS["plain"](), Hebbian(decay=1e-4, patterns=patterns, target=-6.0, steps=1000)
    rule(layer)
    (report,) = rule.reports.values()
    assert report.negative_log_snr < -6
    assert report.steps < 1000
    assert report.condition < 100


def test_noise_and_momentum_can_be_combined_with_every_pattern():
    for patterns in ("one_grid", "independent"):
        layer = LAYERS["plain"]()
        before = weight_snr(layer.weight, layer.grids)
        Hebbian(decay=0.1, patterns=patterns, momentum=0.5, noise=0.05, steps=60)(layer)
        assert weight_snr(layer.weight, layer.grids) > before


def test_the_circuit_shares_as_in_the_papers_figure():
    weight = 1 + torch.randn(100, 1, 9)
    Circuit(presentations=1000)(weight, torch.zeros(100, dtype=torch.int64))
    assert -float(weight_snr(weight.flatten(1)).log()) == pytest.approx(-6.7, abs=0.7)


def test_the_circuit_reports_how_far_it_got():
    rule, layer = Circuit(presentations=250), LocallyConnected2d(1, 2, 3, input_size=11)
    before = max(pool.negative_log_snr() for pool in LayerPools(layer).sharing)
    rule(layer)
    report = rule.reports[""]
    assert report.steps == 250
    assert report.negative_log_snr < before
    after = max(pool.negative_log_snr() for pool in LayerPools(layer).sharing)
    assert after == pytest.approx(report.negative_log_snr, abs=1e-3)
    assert 0 <= report.negative_rates < 1


def test_the_circuit_acts_on_layers():
    layer = LAYERS["grouped"]()
    before = weight_snr(layer.weight, layer.grids)
    Circuit(presentations=200)(layer)
    assert weight_snr(layer.weight, layer.grids) > before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("patterns", ["one_grid", "independent", "layer_by_layer"])
def test_half_precision_weights_learn_in_single_precision(dtype, patterns):
    layer = LAYERS["plain"]().to(dtype)
    wide = LAYERS["plain"]()
    wide.load_state_dict(layer.state_dict())
    for each in (layer, wide):
        Hebbian(decay=0.1, patterns=patterns, steps=30)(each)
    if patterns == "layer_by_layer":  # the network, and so its patterns, are in half precision there
        assert (layer.weight - wide.weight).norm() < torch.finfo(dtype).eps * wide.weight.norm()
    else:
        assert torch.equal(layer.weight, wide.weight.to(dtype))


def test_sleep_under_autocast_learns_in_the_weights_precision():
    layer = LAYERS["plain"]()
    other = copy.deepcopy(layer)
    Hebbian(decay=0.1, patterns="independent", steps=20)(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        Hebbian(decay=0.1, patterns="independent", steps=20)(other)
    assert torch.equal(layer.weight, other.weight)


def unchanged_after(rule, error, says=None):
    layer = LAYERS["plain"]()
    before = layer.weight.detach().clone()
    with pytest.raises(error, match=says):
        rule(layer)
    assert torch.equal(layer.weight, before)


def test_a_diverging_rate_is_detected_said_and_undone():
    unchanged_after(Hebbian(rate=5.0), DivergenceError, "diverge at rate 5; a rate below 0.0")
    unchanged_after(Hebbian(rate=50.0, patterns="independent"), DivergenceError, "rate below")
    unchanged_after(Circuit(rate=1.0, presentations=100), DivergenceError, "diverge")


@pytest.mark.parametrize(
    "rule", [Hebbian(rate=2.03 / 36), Circuit(rate=0.01, presentations=100), Circuit(rate=0.1, presentations=100)]
)
def test_a_rate_that_diverges_slowly_is_detected_too(rule):
    unchanged_after(rule, DivergenceError, "diverge")


def test_an_interrupted_sleep_leaves_the_weights_as_they_were():
    def rate(step):
        if step == 3:
            raise KeyboardInterrupt
        return 0.01

    unchanged_after(Hebbian(rate=rate), KeyboardInterrupt)
    unchanged_after(Hebbian(rate=rate, patterns="independent"), KeyboardInterrupt)
    unchanged_after(Circuit(rate=rate), KeyboardInterrupt)


def interrupted_at(moment, sleep):
    """Press Ctrl-C at the so-manyth call that our own code makes in this sleep; whether the sleep was that long."""
    left = moment

    def profile(frame, event, _):
        nonlocal left
        if event in ("call", "c_call") and "/sleepconv/" in frame.f_code.co_filename:
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        sleep()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.parametrize("rule", [Instant(), Hebbian(steps=1)])
def test_an_interrupt_at_any_moment_leaves_each_layer_as_it_was_or_slept_and_the_next_sleep_works(rule):
    model = nn.Sequential(*(LocallyConnected1d(1, 1, 2, input_size=4 + n) for n in range(2)))
    before, slept = copy.deepcopy(model), rule(copy.deepcopy(model))
    seen = set()
    for moment in itertools.count():
        model.load_state_dict(before.state_dict())
        sleep = Sleep(model, every=1, rule=rule)
        if not interrupted_at(moment, sleep.sleep):
            break
        states = [
            "before"
            if torch.equal(layer.weight, old.weight)
            else "slept"
            if torch.equal(layer.weight, new.weight)
            else ""
            for layer, old, new in zip(model, before, slept, strict=True)
        ]
        seen.add(tuple(states))
        assert all(states), states
        assert sleep.last_sleep is None or states == ["slept", "slept"]
        if isinstance(rule, Instant):
            sleep.sleep()
            assert all(torch.equal(layer.weight, new.weight) for layer, new in zip(model, slept, strict=True))
    assert {("before", "before"), ("slept", "slept")} <= seen


def test_a_sleep_leaves_signal_handlers_alone():
    class Watching(Instant):
        def sleep_(self, layers, model):
            super().sleep_(layers, model)
            handlers.append(signal.getsignal(signal.SIGINT))

    handlers, before = [], signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        Sleep(LAYERS["plain"](), every=1, rule=Watching()).sleep()
    finally:
        signal.signal(signal.SIGINT, before)
    assert handlers == [signal.SIG_DFL]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_without_decay_half_precision_weights_end_at_the_mean_but_for_one_rounding(dtype):
    layer = LAYERS["plain"]().to(dtype)
    mean = share_weights_(layer.weight.detach().double(), layer.grids)
    Hebbian(decay=0.0, steps=300)(layer)
    half_a_unit = torch.finfo(dtype).eps / 2
    torch.testing.assert_close(layer.weight.detach().double(), mean, rtol=half_a_unit, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Circuit(presentation_ms=1e308), "`presentation_ms` must be between one and 100,000 steps"),
        (lambda: Circuit(step_ms=1e-300), "between one and 100,000 steps of 1e-300 ms, got 150.0"),
        (lambda: Circuit(tau_ms=math.inf), "`tau_ms` must be a finite number, got inf"),
        (lambda: Circuit(bias=math.nan), "`bias` must be a finite number"),
        (lambda: Circuit(inhibition=torch.ones(3)), "`inhibition` must be a finite number"),
        (lambda: Circuit(inhibition=1e308), "`step_ms` must be between 0 and"),
        (
            lambda: Circuit(presentations=10**12),
            "presentations, of 150 Euler steps, must be at most 666,666, got 1,000,0",
        ),
        (lambda: Circuit(rate=math.inf), "`rate` must be a finite number"),
        (lambda: Hebbian(rate=math.inf), "`rate` must be a finite number"),
        (lambda: Hebbian(steps=10**12, target=-20.0), "steps must be at most 1,000,000, got 1,000,000,000,000"),
        (lambda: Hebbian(patterns_per_step=10**9), "patterns_per_step must be at most 100,000"),
        (lambda: Hebbian(image_shape=(3, 10**6, 10**6)), "image_shape must be at most 100,000,000"),
        (lambda: Hebbian(image_shape=(3, 0, 8)), "`image_shape` must be an int, at least 1, got 0"),
    ],
)
def test_what_would_not_end_is_refused_when_the_rule_is_made(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: Hebbian(patterns="dreams"),
            "`patterns` must be one of one_grid, .*, got 'dreams'",
        ),
        (lambda: Hebbian(decay=0.0, noise=0.1), "`decay` must be above 0 if inputs are noisy"),
        (lambda: Hebbian(decay=-1.0), "`decay` must be a finite number, at least 0, at most 1e\\+15, got -1.0"),
        (lambda: Hebbian(decay=math.nan), "`decay` must be a finite number.* got nan"),
        (lambda: Hebbian(noise=math.inf), "`noise` must be a finite number.* got inf"),
        (lambda: Hebbian(inhibition=math.nan), "`inhibition` must be a finite number"),
        (lambda: Hebbian(inhibition="10"), "`inhibition` must be a finite number"),
        (lambda: Hebbian(target="low"), "`target` must be a finite number, got 'low'"),
        (lambda: Hebbian(in_turn="x"), "`in_turn` must be True or False, got 'x'"),
        (lambda: Hebbian(seed="x"), "`seed` must be an int"),
        (lambda: Circuit(seed=2**70), "`seed` must be an int"),
        (lambda: Hebbian(steps=1.5), "`steps` must be an int"),
        (lambda: Hebbian(patterns_per_step=1.5), "`patterns_per_step` must be an int"),
        (lambda: Hebbian(steps=0), "steps"),
        (lambda: Hebbian(momentum=1.2), "momentum"),
        (lambda: Hebbian(rate=-0.1), "`rate` must be .* at least 0"),
        (lambda: Hebbian(rate=0.0), "`rate` must be above 0"),
        (lambda: Hebbian(patterns_per_step=0), "`patterns_per_step` must be an int, at least 1, got 0"),
        (lambda: Hebbian()(torch.zeros(4), torch.zeros(4, dtype=torch.int64)), "no axes for the filters"),
        (
            lambda: Hebbian()(torch.full((4, 1, 1), torch.nan), torch.zeros(4, dtype=torch.int64)),
            "NaN or infinity",
        ),
        (lambda: Hebbian(inhibition=-0.5), "inhibition"),
        (lambda: Hebbian(border="none"), "`border` must be one of all, interior, got 'none'"),
        (lambda: Instant(border="none"), "`border` must be one of"),
        (lambda: Circuit(border="none"), "`border` must be one of"),
        (
            lambda: Instant("interior")(LocallyConnected2d(1, 1, 3, input_size=5, padding=1)),
            "as the rule's border and period choose them",
        ),
        (lambda: Instant(period=0), "`period` must be an int"),
        (lambda: Instant(period=(3, 0)), "`period` must be an int"),
        (lambda: Instant(period=(3, None)), "`period` must be an int"),
        (lambda: Instant(period=()), "`period` must be an int or several ints"),
        (lambda: Instant(period="3"), "`period` must be an int or several ints"),
        (lambda: Instant(period=True), "`period` must be an int, at least 1, got True"),
        (lambda: Instant(period=3)(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64)), "lateral_grids"),
        (lambda: Instant(period=1)(torch.zeros(2, 1), torch.tensor([0, 1])), "pass the grids of that period"),
        (lambda: Instant(period=8)(LocallyConnected2d(1, 1, 3, input_size=10)), "as the rule's border and period"),
        (lambda: Circuit(presentations=0), "presentations"),
        (lambda: Circuit(decay=-1.0), "decay"),
        (lambda: Circuit(decay=math.nan), "`decay` must be a finite number"),
        (lambda: Circuit(input_power=0.0), "`input_power` must be above 0"),
        (lambda: Circuit(rate=None), "`rate` must be a finite number, .* or a function of the step, got None"),
        (lambda: Instant()(torch.zeros(3, 1)), "does not know its grids"),
        (lambda: Instant()(nn.Linear(2, 2)), "no locally connected layer"),
        (lambda: Instant()(LocallyConnected2d(1, 1, 3, input_size=4)), "nothing to share"),
        (lambda: Hebbian()(LocallyConnected2d(1, 1, 3, input_size=4)), "nothing to share"),
    ],
)
def test_bad_input_is_one_clear_error(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("huge", [1e300, 10**400], ids=["1e300", "10**400"])
@pytest.mark.parametrize(
    ("rule", "name"),
    [(Hebbian, "rate"), (Hebbian, "noise"), (Hebbian, "decay"), (Circuit, "rate"), (Circuit, "decay")],
)
def test_numbers_so_large_that_products_overflow_are_refused_when_the_rule_is_made(rule, name, huge):
    with pytest.raises(ValueError, match=rf"`{name}` must be .*at most 1e\+15.* got 1"):
        rule(**{name: huge})


@pytest.mark.parametrize("patterns", ["one_grid", "independent"])
def test_a_huge_rate_that_a_function_returns_is_refused_and_a_large_one_diverges(patterns):
    layer = LocallyConnected1d(40, 1, 3, input_size=9)
    with pytest.raises(ValueError, match=r"`rate\(0\)` must be .* got 1e\+300"):
        Hebbian(rate=lambda step: 1e300, patterns=patterns)(layer)
    with pytest.raises(DivergenceError, match="is stable here"):
        Hebbian(rate=1e15, decay=1e3, patterns=patterns)(layer)


def test_rules_act_on_tensors_and_modules_only():
    with pytest.raises(TypeError, match="takes a tensor, a layer or a model, got str"):
        Instant()("model")
