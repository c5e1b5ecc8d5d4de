import pytest

from sleepconv.experiments.paper import SEARCHES, recipe, search_runs, table_rows
from sleepconv.experiments.paper.numbers import RATES


def points(name):
    return {(run.learning_rate, run.weight_decay) for run in search_runs(name)}


def test_grids_are_those_of_the_appendix():
    both = (1e-2, 1e-4)
    assert points("cifar100_convolutional") == {(rate, d) for rate in (1e-1, 5e-2, 1e-2, 5e-3) for d in both}
    assert points("cifar10_sleep_every_1") == {(rate, d) for rate in (1e-3, 5e-4, 1e-4, 5e-5) for d in both}
    assert points("tiny_imagenet_convolutional") == {(rate, d) for rate in (5e-3, 1e-3, 5e-4) for d in both}
    assert points("tiny_imagenet_padding0_local") == {(rate, d) for rate in (1e-3, 5e-4) for d in both}
    assert points("imagenet_local") == {(rate, 1e-2) for rate in (1e-3, 5e-4, 1e-4, 5e-5)}
    assert points("imagenet_convolutional") == {(rate, d) for rate in (1e-3, 5e-4) for d in (1e-2, 1e-4, 1e-6)}
    assert points("imagenet_first_convolutional_local") == points("imagenet_convolutional") - {(1e-3, 1e-2)}


@pytest.mark.parametrize("table", RATES)
def test_the_papers_choice_lies_on_the_grid(table):
    for dataset, rows in RATES[table].items():
        for row, rates in rows.items():
            assert (rates.learning_rate, rates.weight_decay) in points(table_rows(table, dataset)[row])


def test_the_paper_tuned_two_networks_with_a_convolutional_first_layer():
    tuned = [name for name in SEARCHES if "first" in name]
    assert tuned == ["imagenet_first_convolutional_local_grid", "imagenet_first_convolutional_sleep_every_1_grid"]


def test_searches_are_evaluated_on_the_validation_split_and_compressed_as_the_text_says():
    for name, runs in SEARCHES.items():
        base = recipe(name.removesuffix("_grid"))
        epochs = {"tiny-imagenet": 50, "imagenet": 20}.get(base.dataset, 200)
        for run in runs():
            assert (run.tuning, run.epochs, run.sleep_every, run.padding) == (
                True,
                epochs,
                base.sleep_every,
                base.padding,
            )
    drops = [epoch for epoch in range(1, 50) if changes(search_runs("tiny_imagenet_local")[0], epoch)]
    assert drops == [25, 37]


def test_every_point_of_every_grid_has_its_own_name():
    names = [run.name for runs in SEARCHES.values() for run in runs()]
    assert len(names) == len(set(names))
    assert "cifar10_local_grid_5e-04_1e-02" in names


def changes(run, epoch):
    return run.learning_rate_in(epoch) != run.learning_rate_in(epoch - 1)
