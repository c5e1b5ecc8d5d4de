import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from sleepconv.cli import main
from sleepconv.experiments.data.tasks import DATASETS
from sleepconv.experiments.paper import RECIPES, recipe
from sleepconv.experiments.results.listing import WORK, as_text, recipe_rows, seconds_per_epoch
from sleepconv.experiments.results.records import Records, read_records
from sleepconv.experiments.training.parallel import Place, describe
from sleepconv.models import resnet8, resnet18, resnet20

NOTHING = Records([], [])


def test_shows_every_recipe_with_the_papers_number_and_an_estimate():
    entries = recipe_rows(NOTHING, speed=100e9)
    assert [entry["name"] for entry in entries] == list(RECIPES)
    entry = next(entry for entry in entries if entry["name"] == "cifar100_sleep_every_10")
    assert entry["paper"] == {"top1": 55.7, "top5": 80.9}
    assert entry["estimate"] == {
        "seconds": 200 * seconds_per_epoch(recipe("cifar100_sleep_every_10"), 100e9),
        "from": "probe",
    }
    text = as_text(entries)
    assert "estimate" in text
    assert all(name in text for name in RECIPES)


def test_says_which_have_records_at_what_scale_and_of_which_seeds(record, tmp_path):
    for seed in (0, 2):
        record("cifar10_local", top1=50.0, scale=0.1, seed=seed)
    record("cifar10_local", top1=50.0)
    entries = recipe_rows(read_records([tmp_path]), "cifar10", speed=1e9)
    assert entries[1]["records"] == {"0.1": [0, 2], "1": [0]}
    assert "scale 0.1: seed 0, 2; scale 1: seed 0" in as_text(entries)
    assert entries[0]["records"] == {}


def test_time_comes_from_records_of_this_machine_but_not_of_another(record, tmp_path):
    record("cifar10_local", top1=50.0)
    mine = record("cifar10_convolutional", top1=50.0)
    (mine / "environment.json").write_text(json.dumps(describe(Place())))
    convolutional, local, *_ = recipe_rows(read_records([tmp_path]), "cifar10", speed=1e9)
    assert convolutional["estimate"] == {"seconds": 600.0, "from": "records"}
    assert local["estimate"]["from"] == "probe"


def test_a_recipe_on_a_dataset_whose_work_is_not_known_has_no_estimate(monkeypatch):
    monkeypatch.setitem(RECIPES, "mine", replace(recipe("cifar10_local"), dataset="fashion-mnist"))
    entries = recipe_rows(NOTHING, "fashion-mnist", speed=1e9)
    assert entries[0]["estimate"] is None
    assert as_text(entries).splitlines()[2].split() == ["cifar10_local", "80.9", "–", "–", "–"]


def test_repetitions_cost_that_many_times_the_images():
    plain, repeated = (seconds_per_epoch(recipe(f"cifar10_{row}"), 1e9) for row in ("local", "16_repetitions"))
    assert 15 < repeated / plain < 16


@pytest.mark.parametrize(
    ("dataset", "network", "size"),
    [
        ("cifar10", resnet20(), 32),
        ("cifar10-16x16", resnet8(), 16),
        ("tiny-imagenet", resnet20(200), 48),
        ("imagenet", resnet18(), 224),
    ],
)
def test_the_arithmetic_behind_estimates_is_that_of_the_networks(dataset, network, size):
    counts = []
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(lambda m, _, out: counts.append(out[0, 0].numel() * m.weight.numel()))
    network(torch.zeros(1, 3, size, size))
    assert sum(counts) == pytest.approx(WORK[dataset][0], rel=0.01)


def test_the_image_counts_behind_estimates_are_those_of_the_datasets():
    assert {name: (train, test) for name, (_, train, test) in WORK.items()} == {
        name: (DATASETS[name].train_images, DATASETS[name].test_images) for name in WORK
    }


def test_the_command_measures_this_machine(capsys, tmp_path):
    assert main(["list", "--dataset", "cifar10", "--probe", "--json", "--runs", str(tmp_path)]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert {entry["dataset"] for entry in entries} == {"cifar10"}
    assert all(entry["estimate"]["seconds"] > 0 for entry in entries)
    assert main(["list", "--dataset", "cifer10"]) == 1
    assert "no recipe has the dataset 'cifer10'; did you mean 'cifar10'?" in capsys.readouterr().err
