import re

import pytest

from sleepconv.experiments.paper import RECIPES, about, datasets_of, label, recipe, table_rows
from sleepconv.experiments.paper.numbers import ACCURACY, RATES
from sleepconv.experiments.paper.rows import WAKE_RULES, WAKE_TABLES

RESULTS = [(table, dataset) for table in ACCURACY for dataset in datasets_of(table)]


@pytest.mark.parametrize(("table", "dataset"), RESULTS)
def test_every_row_of_every_table_is_a_recipe_whose_docstring_has_the_papers_number(table, dataset):
    for row, name in table_rows(table, dataset).items():
        expected = ACCURACY[table][dataset][row]
        numbers = [float(number) for number in re.findall(r"([\d.]+) % top", about(name))]
        assert numbers == [value for value in (expected.top1, expected.top5) if value is not None]


@pytest.mark.parametrize(("table", "dataset"), [pair for pair in RESULTS if pair[1] != "imagenet" and pair[0] != 5])
def test_docstrings_cite_table_row_and_the_table_of_the_rates(table, dataset):
    rates = {1: 11, 4: 10, 6: 12}[table]
    for row, name in table_rows(table, dataset).items():
        assert about(name).startswith(f"Table {table}, {label(row)}: ")
        assert about(name).endswith(f"Rates: Table {rates}.")


@pytest.mark.parametrize("table", RATES)
def test_learning_rates_and_weight_decays_are_those_of_tables_10_to_12(table):
    for dataset, rows in RATES[table].items():
        for row, rates in rows.items():
            run = recipe(table_rows(table, dataset)[row])
            assert (run.learning_rate, run.weight_decay) == (rates.learning_rate, rates.weight_decay)
            assert (run.padding, run.batch_size, run.epochs, run.network) == (4 * (table - 10), 512, 200, "resnet20")


def test_rates_on_imagenet_are_the_final_hyperparameters_of_the_appendix():
    for row, name in table_rows(13, "imagenet").items():
        run = recipe(name)
        assert run.learning_rate == (1e-3 if row in ("convolutional", "sleep_every_1") else 5e-4)
        assert (run.weight_decay, run.batch_size, run.epochs, run.network) == (1e-2, 256, 200, "resnet18")


@pytest.mark.parametrize("name", [name for name in RECIPES if not name.startswith("demo_")])
def test_a_row_differs_from_the_plain_network_as_its_name_says(name):
    run = recipe(name)
    assert run.name == name
    assert (run.scale, run.seed, run.tuning) == (1.0, 0, False)
    if found := re.search(r"sleep_every_(\d+)", name):
        assert run.sleep_every == int(found[1])
    elif "figure" not in name:
        assert run.sleep_every is None
    found = re.search(r"_(\d+)_repetitions", name)
    assert run.repetitions == (int(found[1]) if found else 1)
    found = re.search(r"_padding(\d)", name)
    if name.startswith("bartunov"):
        assert run.padding == 0
    elif run.dataset != "imagenet":
        assert run.padding == (int(found[1]) if found else 4) // (2 if name.startswith("miniature") else 1)
    first = "local_after_first" if "first_convolutional" in name else "local"
    assert run.connectivity == ("convolutional" if name.endswith("_convolutional") else first)


@pytest.mark.parametrize("table", ["miniature", "miniature-padding0"])
def test_a_miniature_differs_from_its_original_in_network_size_and_padding_alone(table):
    for name in table_rows(table, "cifar10-16x16").values():
        original = recipe(name.replace("miniature", "cifar10"))
        small = original.changed(name=name, dataset="cifar10-16x16", network="resnet8", padding=original.padding // 2)
        assert recipe(name) == small


@pytest.mark.parametrize("table", WAKE_TABLES)
def test_a_run_without_weight_transport_differs_from_its_twin_in_its_rule_and_what_that_needs(table):
    wake, rows = WAKE_TABLES[table], table_rows(table, WAKE_TABLES[table].dataset)
    assert len(rows) == 4 * (1 + len(wake.rules))
    for row, name in rows.items():
        rule, column = next((rule, row[len(rule) + 1 :]) for rule in WAKE_RULES if row.startswith(f"{rule}_"))
        run, twin = recipe(name), recipe(wake.backprop[column])
        assert run.wake == rule.removeprefix("mirrored_")
        assert (run.connectivity, run.sleep_every) == (twin.connectivity, twin.sleep_every)
        if "kolen_pollack" not in rule and rule != "backprop":
            assert run == twin.changed(name=name, wake=rule)


def test_the_three_panels_of_figure_6_differ_in_nothing_but_the_rate():
    runs = [recipe(f"cifar10_figure_6{panel}") for panel in "abc"]
    assert [run.learning_rate for run in runs] == [5e-4, 5e-3, 5e-2]
    assert len({run.changed(name="same", learning_rate=1.0).as_json() for run in runs}) == 1
    assert {(run.sleep_every, run.snr_every) for run in runs} == {(10, 1)}


def test_the_hebbian_sleeper_has_an_instant_twin():
    learned, instant = recipe("cifar10_hebbian_sleep_every_100"), recipe("cifar10_sleep_every_100")
    assert learned.changed(name=instant.name, sleep_rule="instant", sleep_options={}) == instant


def test_learned_sleep_differs_from_its_twin_in_its_sleep_alone():
    instant, hebbian, grids, circuit, local = map(recipe, table_rows("learned-sleep", "cifar10-16x16").values())
    for learned in (hebbian, grids, circuit):
        as_instant = {"name": instant.name, "sleep_rule": "instant", "sleep_options": {}, "grids": "given"}
        assert learned.changed(**as_instant) == instant
        assert learned != instant
    assert grids == hebbian.changed(name=grids.name, grids="learned")
    assert (local.sleep_every, circuit.sleep_rule) == (None, "network_circuit")


@pytest.mark.parametrize("table", ["miniature-vit", "miniature-mixer"])
def test_networks_on_patches_differ_from_each_other_in_connectivity_and_sleep_alone(table):
    shared, *others = map(recipe, table_rows(table, "cifar10-16x16").values())
    assert [run.sleep_every for run in others] == [None, 1, 10, 100]
    for run in others:
        assert run == shared.changed(name=run.name, connectivity="local", sleep_every=run.sleep_every)


def test_longer_training_has_a_smaller_rate_and_4_or_8_times_the_epochs():
    for dataset in ("cifar10", "cifar100", "tiny_imagenet"):
        plain = recipe(f"{dataset}_local")
        for times in (4, 8):
            longer = recipe(f"{dataset}_local_{times}_times_longer")
            assert longer.epochs == times * plain.epochs
            assert longer.learning_rate <= plain.learning_rate / 4


def test_changes_are_applied_and_unknown_names_suggest_the_nearest():
    assert recipe("cifar10_local", seed=4, scale=0.1).seed == 4
    with pytest.raises(ValueError, match="did you mean 'cifar10_padding8_sleep_every_1'"):
        recipe("cifar10-padding8-sleep-every-1")
    with pytest.raises(ValueError, match="`sleepconv list` shows them all"):
        recipe("zzz")
    with pytest.raises(ValueError, match="did you mean 'learning_rate'"):
        recipe("cifar10_local", learning_rat=1.0)


def test_a_table_or_dataset_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="there is no table 3 of training results; there are 1, 2, 4"):
        datasets_of(3)
    with pytest.raises(ValueError, match="table 1 has cifar10, cifar100, tiny-imagenet, not 'imagenet'"):
        table_rows(1, "imagenet")
