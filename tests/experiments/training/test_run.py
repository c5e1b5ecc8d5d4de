import json

import pytest
import torch
from torch import nn

from sleepconv.experiments.runs import Run, find_runs, run_path
from sleepconv.experiments.runs.run import CHOICES
from sleepconv.experiments.training import build_network
from sleepconv.functional import adjusted_rand_index, lateral_grids
from sleepconv.sleep import sleeping_layers


def test_defaults_are_the_papers_protocol(small: Run):
    run = Run(name="a", dataset="cifar10", connectivity="local", learning_rate=1e-3)
    assert (run.epochs, run.batch_size) == (200, 512)
    rates = [run.learning_rate_in(epoch) for epoch in (0, 99, 100, 149, 150, 199)]
    assert rates == pytest.approx([1e-3, 1e-3, 2.5e-4, 2.5e-4, 6.25e-5, 6.25e-5])


@pytest.mark.parametrize(("epochs", "scale", "drops"), [(200, 0.1, (10, 15)), (50, 1.0, (25, 37)), (20, 1.0, (10, 15))])
def test_drops_of_the_learning_rate_move_along_with_the_scale(epochs, scale, drops):
    run = Run(name="a", dataset="cifar10", connectivity="local", learning_rate=1.0, epochs=epochs, scale=scale)
    rates = [run.learning_rate_in(epoch) for epoch in range(run.scaled_epochs)]
    assert [e for e in range(1, len(rates)) if rates[e] < rates[e - 1]] == list(drops)


def test_a_single_epoch_has_no_drop(small: Run):
    assert small.changed(epochs=1).learning_rate_in(0) == small.learning_rate


def test_json_keeps_every_field(small: Run):
    changed = small.changed(sleep_rule="hebbian", sleep_options={"decay": 0.1}, seed=3, tuning=True)
    assert Run.from_json(changed.as_json()) == changed
    assert set(json.loads(changed.as_json())) == set(vars(changed))


@pytest.mark.parametrize("field", CHOICES)
def test_a_choice_that_does_not_exist_is_refused_with_those_that_do(small: Run, field: str):
    with pytest.raises(ValueError, match=CHOICES[field][0]):
        small.changed(**{field: "other"})


def test_a_shared_start_is_that_of_the_convolution_and_an_independent_one_is_not(small: Run):
    x = torch.randn(4, 1, 12, 24)
    runs = [small.changed(connectivity="convolutional", sleep_every=None), small.changed(start="shared"), small]
    convolution, shared, independent = (build_network(run, (1, 12, 24), 10).eval() for run in runs)
    torch.testing.assert_close(shared(x), convolution(x))
    assert not torch.allclose(independent(x), convolution(x), atol=1e-3)


def test_records_from_before_there_was_a_choice_of_start_are_read(small: Run):
    old = {key: value for key, value in json.loads(small.as_json()).items() if key != "start"}
    assert Run.from_json(json.dumps(old)) == small


def test_a_misspelt_field_suggests_the_nearest(small: Run):
    with pytest.raises(ValueError, match="did you mean 'learning_rate'"):
        small.changed(learning_rat=1.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("scale", 0.0),
        ("scale", float("nan")),
        ("scale", float("inf")),
        ("weight_decay", -1.0),
        ("rest_learning_rate", 0.0),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("slow_momentum", 1.0),
        ("warm_up", -1),
        ("optimizer", "adam"),
        ("statistics", "none"),
        ("epochs", 0),
        ("padding", -1),
        ("batch_size", 0),
        ("repetitions", 0),
        ("sleep_every", 0),
        ("seed", -1),
        ("seed", 2**32),
        ("name", "../elsewhere"),
    ],
)
def test_impossible_values_are_refused(small: Run, field: str, value):
    with pytest.raises(ValueError, match=field):
        small.changed(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tuning", "abc"),
        ("tuning", 1),
        ("share_gradients", 1),
        ("restart_each_epoch", "yes"),
        ("momentum", None),
        ("warm_up", 0.5),
        ("epochs", 2.5),
        ("epochs", True),
        ("seed", 1.5),
        ("snr_every", 1.5),
        ("sleep_every", "often"),
        ("learning_rate", "small"),
        ("scale", None),
        ("sleep_options", 3),
        ("dataset", 3),
        ("name", ""),
    ],
)
def test_a_value_of_another_type_is_refused_rather_than_interpreted(small: Run, field: str, value):
    with pytest.raises(TypeError, match=f"^(`{field}` must be|{field} is)"):
        small.changed(**{field: value})


def test_a_convolutional_network_does_not_sleep(small: Run):
    with pytest.raises(ValueError, match="a convolution already shares"):
        small.changed(connectivity="convolutional")


def test_a_convolutional_network_has_no_choice_of_start(small: Run):
    with pytest.raises(ValueError, match="`start`='shared' needs a local connectivity"):
        small.changed(connectivity="convolutional", sleep_every=None, start="shared")


@pytest.mark.parametrize("field", ["share_gradients", "share_moments", "restart_each_epoch", "slow_momentum"])
def test_what_happens_in_sleep_needs_a_network_that_sleeps(small: Run, field: str):
    with pytest.raises(ValueError, match=f"`{field}` needs a network that sleeps"):
        small.changed(sleep_every=None, **{field: 0.5 if field == "slow_momentum" else True})


def test_learned_grids_need_a_network_that_sleeps(small: Run):
    with pytest.raises(ValueError, match="`grids`='learned' needs a network that sleeps"):
        small.changed(grids="learned", sleep_every=None)


def test_a_network_with_learned_grids_has_them_before_training(small: Run):
    run = small.changed(connectivity="local", network="three_layers", sleep_every=1, grids="learned")
    layers = sleeping_layers(build_network(run, (1, 12, 24), 10))
    for layer in layers.values():
        assert layer.assigned_grids is not None
        assert adjusted_rand_index(layer.grids, lateral_grids(layer.output_size, 3)) == 1


@pytest.mark.parametrize("network", ["small_vit", "mlp_mixer"])
def test_a_local_network_on_patches_shares_only_norms_and_classifier_and_can_start_shared(small: Run, network: str):
    shared = small.changed(network=network, connectivity="convolutional", sleep_every=None)
    local = shared.changed(connectivity="local", start="shared")
    networks = [build_network(run, (3, 16, 16), 10) for run in (shared, local)]
    kinds = {type(module).__name__ for module in networks[1].modules() if hasattr(module, "weight")}
    assert kinds == {"LocallyConnected2d", "PerPatchLinear", "LayerNorm", "Linear"}
    assert [name for name, module in networks[1].named_modules() if type(module) is nn.Linear] == ["classifier"]
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(*(model(images) for model in networks))


def test_gradients_are_shared_only_with_a_sleep_after_every_step(small: Run):
    assert small.changed(sleep_every=1, share_gradients=True).share_gradients
    with pytest.raises(ValueError, match="`share_gradients` needs sleep_every=1, got 3"):
        small.changed(share_gradients=True)


def test_records_written_before_a_run_chose_its_optimizer_are_the_papers(small: Run):
    old = json.loads(small.as_json())
    for name in ("optimizer", "momentum", "warm_up", "rest_learning_rate", "share_gradients", "statistics"):
        del old[name]
    assert Run.from_json(json.dumps(old)) == small


def test_runs_are_found_below_a_folder_in_order(tmp_path, small: Run):
    for seed in (1, 0):
        path = run_path(tmp_path, small.changed(seed=seed))
        path.mkdir(parents=True)
        (path / "recipe.json").write_text(small.changed(seed=seed).as_json())
    assert [run.recipe().seed for run in find_runs(tmp_path)] == [0, 1]
