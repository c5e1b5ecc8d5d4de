"""Sleeping before evaluation, also of compiled models: PyTorch does not look for hooks where it has a graph already."""

import copy
import pickle

import pytest
import torch
from torch import nn

from sleepconv import Sleep, to_locally_connected
from sleepconv.testing import assert_convolutional

SAMPLE = torch.randn(2, 1, 9, 9)


class Counting:
    """Not a sleep: counts how often it is asked to."""

    def __init__(self):
        self.slept = 0

    def sleep_(self, layers, model):
        self.slept += 1


class Users(nn.Module):
    """A model of a user's own class; PyTorch treats those of its own, like ``nn.Sequential``, in another way."""

    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return self.inside(x)


def sequential():
    return to_locally_connected(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3)), SAMPLE)


MODELS = {"torch's": sequential, "user's": lambda: Users(sequential())}


def compiled_then_sleep(model, sleep, **options):
    compiled = torch.compile(model, **options)
    return compiled, sleep(compiled)


def sleep_then_compiled(model, sleep, **options):
    asleep = sleep(model)
    return torch.compile(model, **options), asleep


def compiled_in_place(model, sleep, **options):
    model.compile(**options)
    return model, sleep(model)


def compiled_within_another(model, sleep, **options):
    asleep = sleep(model)
    return torch.compile(Users(model), **options), asleep


WAYS = [compiled_then_sleep, sleep_then_compiled, compiled_in_place, compiled_within_another]


@pytest.fixture(autouse=True)
def _fresh_graphs():
    torch.compiler.reset()


def sleeps_in_three_evaluations(model, way, **options):
    rule = Counting()
    model, sleep = way(model, lambda m: Sleep(m, every=100, rule=rule, before_evaluation=True), **options)
    for _ in range(3):
        model.train()(SAMPLE)
        sleep.step()
        model.eval()(SAMPLE)
        model(SAMPLE)
    return rule.slept


def test_sleeps_once_before_evaluation_if_it_took_steps():
    model, rule = sequential(), Counting()
    sleep = Sleep(model, every=100, rule=rule, before_evaluation=True)
    model.eval()(SAMPLE)
    assert rule.slept == 0
    sleep.step()
    model.train()(SAMPLE)
    assert rule.slept == 0
    model.eval()(SAMPLE)
    model(SAMPLE)
    assert rule.slept == 1
    sleep.step()
    sleep.detach()
    model(SAMPLE)
    assert rule.slept == 1


def test_a_copy_of_the_model_does_not_sleep_before_its_evaluation():
    model = sequential()
    sleep = Sleep(model, every=100, before_evaluation=True)
    sleep.step()
    other = copy.deepcopy(model).eval()
    other(SAMPLE)
    with pytest.raises(AssertionError, match="not convolutional"):
        assert_convolutional(other)
    assert sleep.steps_since_sleep == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", MODELS)
def test_every_compiled_model_of_a_process_sleeps_before_each_evaluation(kind, way, backend):
    plain, _ = way(MODELS[kind](), lambda model: None, backend=backend)
    plain.train()(SAMPLE)
    plain.eval()(SAMPLE)
    assert [sleeps_in_three_evaluations(MODELS[kind](), way, backend=backend) for _ in range(2)] == [3, 3]


@pytest.mark.parametrize("way", WAYS[:3])
@pytest.mark.parametrize("kind", MODELS)
def test_listening_does_not_break_the_graph_nor_make_new_ones_at_each_sleep(kind, way):
    graphs = []

    def counting(graph, _):
        graphs.append(graph)
        return graph

    assert sleeps_in_three_evaluations(MODELS[kind](), way, backend=counting, fullgraph=True) == 3
    assert len(graphs) <= 2


def test_the_model_inside_a_compiled_one_sleeps_when_it_is_called_itself():
    model, rule = sequential(), Counting()
    sleep = Sleep(torch.compile(model, backend="eager"), every=100, rule=rule, before_evaluation=True)
    sleep.step()
    model.eval()(SAMPLE)
    assert rule.slept == 1


def test_a_model_that_is_no_longer_listened_to_is_as_before():
    model = sequential()
    before = {name: value for name, value in vars(model).items() if name != "training"}
    sleep = Sleep(model, every=2, before_evaluation=True)
    sleep.detach()
    assert {name: value for name, value in vars(model).items() if name != "training"} == before


def test_a_copied_or_saved_model_runs_on_its_own_weights():
    model = sequential()
    Sleep(model, every=2, before_evaluation=True)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other(SAMPLE), model(SAMPLE))
        other[0].weight.data.zero_()
        other[2].bias.data.zero_()
        other[0].bias.data.zero_()
        assert not other(SAMPLE).any()
        assert model(SAMPLE).any()
