"""Which layers sleep, and when."""

import copy
import gc
import json
import math
import sys

import pytest
import torch
from torch import nn

from sleepconv import Sleep, to_locally_connected
from sleepconv.functional import weight_snr
from sleepconv.nn import LocallyConnected1d, PerPatchLinear
from sleepconv.optim import share_moments
from sleepconv.sleep import Hebbian, Instant, SleepRecord
from sleepconv.testing import assert_convolutional

SAMPLE = torch.randn(2, 1, 9, 9)


def network():
    convolutional = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.Sequential(nn.ReLU(), nn.Conv2d(4, 2, 3)), nn.Flatten(), nn.Linear(98, 2)
    )
    return to_locally_connected(convolutional, SAMPLE)


def train_step(model, optimizer):
    optimizer.zero_grad()
    model(SAMPLE).square().sum().backward()
    optimizer.step()


def is_convolutional(model):
    try:
        assert_convolutional(model)
    except AssertionError:
        return False
    return True


class Counting:
    """Not a sleep: counts how often it is asked to, and what of."""

    def __init__(self):
        self.slept = []

    def sleep_(self, layers, model):
        self.slept.append(list(layers))
        model(SAMPLE)


def test_an_attached_model_sleeps_every_so_many_steps():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    sleep = Sleep(model, every=3)
    sleep.attach(optimizer)
    slept = []
    for _ in range(7):
        train_step(model, optimizer)
        slept.append(is_convolutional(model))
    assert slept == [False, False, True, False, False, True, False]
    assert (sleep.steps, sleep.last_sleep, sleep.steps_since_sleep) == (7, 6, 1)


def test_a_removed_handle_ends_the_sleeps_and_frees_the_sleep_for_another_optimizer():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    sleep = Sleep(model, every=1)
    handle = sleep.attach(optimizer)
    with pytest.raises(RuntimeError, match="already attached to an optimizer"):
        sleep.attach(optimizer)
    handle.remove()
    train_step(model, optimizer)
    assert sleep.steps == 0
    sleep.attach(torch.optim.SGD(model.parameters(), lr=0.1))


def test_steps_are_counted_once():
    model = network()
    sleep = Sleep(model, every=2)
    assert sleep.step() is None
    assert sleep.step() == SleepRecord(step=2)
    sleep.attach(torch.optim.AdamW(model.parameters()))
    with pytest.raises(RuntimeError, match=r"either step\(\) or attach\(\)"):
        sleep.step()


def test_sleeping_by_hand_does_not_change_the_count():
    sleep = Sleep(network(), every=3)
    sleep.step()
    sleep.sleep()
    assert sleep.steps_since_sleep == 0
    assert sleep.step() is None
    assert sleep.step() is not None


def test_the_count_restarts_with_an_epoch_only_if_asked():
    due = {}
    for restart in (True, False):
        sleep = Sleep(network(), every=3, restart_each_epoch=restart)
        due[restart] = []
        for _ in range(2):
            sleep.start_epoch()
            due[restart] += [sleep.step() is not None for _ in range(4)]
    assert [step for step, slept in enumerate(due[True], 1) if slept] == [1, 4, 5, 8]
    assert [step for step, slept in enumerate(due[False], 1) if slept] == [3, 6]


def test_only_included_layers_sleep_and_excluded_ones_do_not():
    for options, names in [({}, ["0", "1.1"]), ({"include": ["1"]}, ["1.1"]), ({"exclude": ["1.1"]}, ["0"])]:
        rule = Counting()
        Sleep(network(), every=1, rule=rule, **options).step()
        assert rule.slept == [names]


def test_a_layer_registered_twice_sleeps_once_and_is_chosen_by_either_name():
    model = network()
    model.again = model[0]
    for options, names in [({}, ["0", "1.1"]), ({"include": ["again"]}, ["0"]), ({"exclude": ["again"]}, ["1.1"])]:
        sleep = Sleep(model, every=1, statistics=True, **options)
        assert list(sleep.layers) == list(sleep.step().layers) == names


@pytest.mark.parametrize("fused", [True, False])
def test_steps_that_a_grad_scaler_skips_are_not_counted(fused):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    sleep = Sleep(model, every=2)
    sleep.attach(optimizer)
    counted = []
    for factor in (1.0, math.inf, math.inf, 1.0):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(SAMPLE).float().square().sum() * factor
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        counted.append((sleep.steps, sleep.last_sleep))
    assert counted == [(1, None), (1, None), (1, None), (2, 2)]


def test_layers_are_found_afresh_at_each_sleep():
    model, rule = network(), Counting()
    sleep = Sleep(model, every=1, rule=rule)
    sleep.step()
    model[0] = nn.Conv2d(1, 4, 3, padding=1)
    sleep.step()
    assert rule.slept == [["0", "1.1"], ["1.1"]]


@pytest.mark.parametrize("rule", [Instant(), Hebbian(decay=0.0, steps=2)])
def test_a_sleep_in_inference_mode_leaves_trainable_weights_and_grids_that_gradients_can_follow(rule):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    sleep = Sleep(model, every=100, rule=rule)
    sleep.attach(optimizer)
    train_step(model, optimizer)
    with torch.inference_mode():
        sleep.sleep_if_awake()
    assert is_convolutional(model)
    train_step(model, optimizer)
    layer = model[0]
    torch.zeros(9, 36).index_add(0, layer.grids.flatten(), layer.weight.flatten(0, 1).flatten(1)).sum().backward()


def test_sleep_if_awake_sleeps_once_if_steps_were_taken():
    rule = Counting()
    sleep = Sleep(network(), every=100, rule=rule)
    assert sleep.sleep_if_awake() is None
    sleep.step()
    assert sleep.sleep_if_awake() == SleepRecord(step=1)
    assert sleep.sleep_if_awake() is None
    assert len(rule.slept) == 1


def test_names_are_those_of_the_compiled_model_inside():
    rule = Counting()
    Sleep(torch.compile(network(), backend="eager"), every=1, rule=rule, include=["1"]).step()
    assert rule.slept == [["1.1"]]


def test_statistics_hold_the_snr_of_each_layer_before_and_after():
    model = network()
    expected = float(weight_snr(model[0].weight, model[0].grids))
    sleep = Sleep(model, every=1, statistics=True)
    record = sleep.step()
    assert sleep.records == [record]
    assert record.layers["0"] == {"before": pytest.approx(expected), "after": math.inf}
    again = json.loads(json.dumps(record.as_dict(), allow_nan=False))
    assert float(again["layers"]["1.1"]["after"]) == math.inf


def test_records_of_weights_that_are_no_numbers_can_be_written_too():
    model = network()
    model[0].weight.data.fill_(math.nan)
    record = Sleep(model, every=1, statistics=True).step()
    assert math.isnan(float(json.loads(json.dumps(record.as_dict(), allow_nan=False))["layers"]["0"]["after"]))


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adafactor])
@pytest.mark.parametrize("shared", [True, False])
def test_moments_are_shared_only_if_asked(kind, shared):
    model = network()
    optimizer = kind(model.parameters(), lr=0.01, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))
    sleep = Sleep(model, every=1)
    sleep.attach(optimizer)
    if shared:
        share_moments(optimizer, sleep)
    train_step(model, optimizer)
    layer = copy.deepcopy(model[0])
    moments = [m for m in optimizer.state[model[0].weight].values() if m.dim()]
    assert moments
    for moment in moments:
        layer.weight.data.copy_(moment)
        assert is_convolutional(layer) == shared


def test_a_rule_without_grids_of_its_own_goes_by_the_layers_whatever_else_it_has():
    rule = Counting()
    rule.period, rule.border = 1000, "of the night"
    sleep = Sleep(network(), every=1, rule=rule, statistics=True)
    assert sleep.sleep().layers["0"]["before"] == float(weight_snr(sleep.layers["0"].weight, sleep.layers["0"].grids))


def test_a_loaded_state_counts_on():
    sleep = Sleep(network(), every=3)
    for _ in range(4):
        sleep.step()
    state = json.loads(json.dumps(sleep.state_dict()))
    other = Sleep(network(), every=3)
    other.load_state_dict(state)
    assert (other.steps, other.last_sleep) == (4, 3)
    assert [other.step() is not None for _ in range(2)] == [False, True]


@pytest.mark.parametrize("wrong", ["7", "", -1, 7.0, True], ids=repr)
@pytest.mark.parametrize("key", ["count", "last_sleep", "steps"])
def test_a_state_with_anything_but_possible_counts_is_refused_and_changes_nothing(key, wrong):
    sleep = Sleep(network(), every=3)
    good = {"steps": 7, "count": 1, "last_sleep": 6}
    sleep.load_state_dict(good)
    state = {"steps": 9, "count": 3, "last_sleep": None} | {key: wrong}
    with pytest.raises(ValueError, match=f"must be ints: .* got .*{key}={wrong!r}"):
        sleep.load_state_dict(state)
    assert sleep.state_dict() == good


def test_what_is_not_the_state_of_a_sleep_is_refused():
    later = {"steps": 3, "count": 0, "last_sleep": 4}
    for state, says in [({"steps": 3}, "last_sleep, got steps"), ({}, "got nothing"), (7, "got int"), (later, "=4")]:
        with pytest.raises(ValueError, match=says):
            Sleep(network(), every=3).load_state_dict(state)


def test_an_optimizer_built_before_a_conversion_in_place_is_refused():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    sleep = Sleep(model, every=2)
    sleep.attach(optimizer)
    model[1][1] = copy.deepcopy(model[1][1])
    train_step(model, optimizer)
    with pytest.raises(ValueError, match=r"'1\.1'"):
        train_step(model, optimizer)
    with pytest.raises(ValueError, match=r"'1\.1'"):
        Sleep(model, every=10).attach(optimizer)
    model[1][1].weight.requires_grad_(False)
    sleep.sleep()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("patterns", ["one_grid", "independent", "layer_by_layer"])
def test_a_sleep_that_fails_leaves_weights_moments_and_counts_and_the_next_one_works(patterns, error):
    failing = True

    def rate(step):
        if failing and step == 1:
            raise error("in the middle")
        return 0.01

    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    rule = Hebbian(rate=rate, patterns=patterns, steps=2, in_turn=True, image_shape=(1, 9, 9))
    sleep = Sleep(model, every=2, rule=rule, statistics=True)
    sleep.attach(optimizer)
    share_moments(optimizer, sleep)
    twin = copy.deepcopy(model)
    twins_optimizer = torch.optim.AdamW(twin.parameters())
    for _ in range(2):
        train_step(twin, twins_optimizer)
    train_step(model, optimizer)
    with pytest.raises(error, match="in the middle"):
        train_step(model, optimizer)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert torch.equal(optimizer.state[ours]["exp_avg"], twins_optimizer.state[theirs]["exp_avg"])
    assert (sleep.state_dict(), sleep.records) == ({"steps": 2, "count": 2, "last_sleep": None}, [])
    assert sleep.attached
    assert model.training
    failing = False
    train_step(model, optimizer)
    train_step(model, optimizer)
    assert (sleep.state_dict(), len(sleep.records)) == ({"steps": 4, "count": 4, "last_sleep": 4}, 1)
    assert sleep.records[0].layers["0"]["after"] > sleep.records[0].layers["0"]["before"]


def test_an_attached_sleep_lives_with_the_optimizer_and_a_second_one_over_its_layers_is_refused():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    handle = Sleep(model, every=1).attach(optimizer)
    gc.collect()
    train_step(model, optimizer)
    assert is_convolutional(model)
    rule = Counting()
    other = Sleep(model, every=1, rule=rule, exclude=["0"])
    with pytest.raises(RuntimeError, match=r"another attached Sleep already lets '1\.1' sleep; call its detach"):
        other.attach(optimizer)
    assert not other.attached
    handle.remove()
    other.attach(optimizer)
    train_step(model, optimizer)
    assert rule.slept == [["1.1"]]
    Sleep(model, every=1, include=["0"]).attach(optimizer)
    other.detach()
    Sleep(model, every=1, include=["1"]).attach(optimizer)


def test_a_layer_cannot_sleep_by_two_optimizers_until_the_first_sleep_is_detached_or_dropped():
    model = network()
    one, other = (torch.optim.AdamW(model.parameters()) for _ in range(2))
    sleep, second = Sleep(model, every=1), Sleep(model, every=1, exclude=["0"])
    sleep.attach(one)
    with pytest.raises(RuntimeError, match=r"another attached Sleep already lets '1\.1' sleep; call its detach"):
        second.attach(other)
    assert not second.attached
    sleep.detach()
    second.attach(other)
    del second, other
    sleep.attach(one)
    model[0], model[1] = nn.Identity(), nn.Identity()
    local = network()
    Sleep(local, every=1).attach(torch.optim.AdamW(local.parameters()))


def calls_of(function):
    """The names of the Python and C functions that it calls, itself included."""
    calls = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if "call" in event else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def test_a_step_on_which_nothing_sleeps_only_counts():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sleep = Sleep(model, every=2)
    sleep.attach(optimizer)
    (hook,) = optimizer._optimizer_step_post_hooks.values()
    assert len(calls_of(lambda: hook(optimizer, (), {}))) < 10
    assert sleep.steps == 1


@pytest.mark.parametrize("rule", [Instant(), Hebbian(steps=1)])
def test_a_layers_grids_are_computed_once_for_all_sleeps(rule):
    sleep = Sleep(network(), every=1, rule=rule, statistics=True)
    calls = calls_of(sleep.sleep)
    assert "weight_snr" in calls
    assert "lateral_grids" not in calls


@pytest.mark.parametrize("layer", [LocallyConnected1d(2, 3, 3, input_size=9), PerPatchLinear(3, 2, num_patches=4)])
def test_changing_the_grids_that_a_layer_returned_does_not_change_who_shares(layer):
    expected = Instant()(copy.deepcopy(layer)).weight
    layer.grids.copy_(torch.arange(layer.grids.numel()))
    layer.grids.numpy()[:] = 0
    Sleep(layer, every=1).sleep()
    assert torch.equal(layer.weight, expected)


@pytest.mark.parametrize("every", [0, -1, 1.5, "10"])
def test_a_period_is_at_least_one_step(every):
    with pytest.raises(ValueError, match="1 or more"):
        Sleep(network(), every=every)


def test_a_function_chooses_the_steps_after_which_to_sleep_and_never_chooses_none():
    rule = Counting()
    sleep = Sleep(network(), every=lambda step: step in (1, 2, 4), rule=rule)
    assert [sleep.step() is not None for _ in range(5)] == [True, True, False, True, False]
    awake = Sleep(network(), every="never", rule=rule)
    assert [awake.step() for _ in range(5)] == [None] * 5
    assert awake.sleep_if_awake().step == 5


def test_a_function_counts_from_the_start_of_an_epoch_if_asked():
    sleep = Sleep(network(), every=lambda step: step == 2, rule=Counting(), restart_each_epoch=True)
    slept = []
    for step in range(6):
        if step % 3 == 0:
            sleep.start_epoch()
        slept.append(sleep.step() is not None)
    assert slept == [False, True, False] * 2


def test_its_repr_says_when_how_and_which_layers_sleep():
    sleep = Sleep(network(), every=10)
    sleep.step()
    assert (
        repr(sleep)
        == "Sleep(every=10, rule=Instant(border='all', period=None), layers=2 (0, 1.1), steps=1, last_sleep=None)"
    )
    assert "every='never'" in repr(Sleep(network(), every="never"))
    assert "every=<lambda>" in repr(Sleep(network(), every=lambda step: True))


def test_what_cannot_sleep_is_refused_at_once():
    with pytest.raises(ValueError, match="to_locally_connected"):
        Sleep(nn.Linear(1, 1), every=1)
    with pytest.raises(ValueError, match="nothing to share"):
        Sleep(to_locally_connected(nn.Conv2d(1, 1, 3), torch.randn(1, 1, 5, 5)), every=1)
    for rule in ("instant", Instant):
        with pytest.raises(TypeError, match=r"such as Instant\(\)"):
            Sleep(network(), every=1, rule=rule)
    with pytest.raises(TypeError, match="torch.optim optimizer, got list"):
        Sleep(network(), every=1).attach([])
    with pytest.raises(TypeError, match="list of names"):
        Sleep(network(), every=1, exclude="0")
    with pytest.raises(ValueError, match=r"leave no layer to sleep; the model has 0, 1\.1"):
        Sleep(network(), every=1, exclude=["0", "1"])
    with pytest.raises(ValueError, match="no module 'head'"):
        Sleep(network(), every=1, exclude=["head"])
