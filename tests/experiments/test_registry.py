"""Networks, datasets, rules, recipes and tables from outside of the package."""

import json
import sys
from importlib.metadata import EntryPoint

import pytest
import torch
from torch import nn

from sleepconv.cli import main
from sleepconv.experiments import Run, register_dataset, register_network, register_rule, train
from sleepconv.experiments.data import DATASETS, Images, tasks
from sleepconv.experiments.paper import RECIPES, TABLES, recipe, register_recipe, register_table
from sleepconv.experiments.paper.rows import REGISTERED_TABLES
from sleepconv.experiments.runs import registry
from sleepconv.experiments.training import network
from sleepconv.sleep import Instant

EXTENSION = """
import torch
from torch import nn

from sleepconv.experiments import Run, register_dataset, register_network, register_rule
from sleepconv.experiments import register_recipe, register_table
from sleepconv.experiments.data import Images
from sleepconv.sleep import Instant


@register_network("two_layers")
def two_layers(channels, classes):
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, classes))


@register_dataset("stripes")
def stripes(data_dir, *, train=True, complete=True):
    labels = torch.arange(40 if train else 20) % 2
    pixels = torch.zeros(len(labels), 1, 8, 8, dtype=torch.uint8)
    pixels[labels == 0, :, ::2] = 255
    pixels[labels == 1, :, :, ::2] = 255
    return Images(pixels, labels, ("rows", "columns"))


@register_rule("often")
class Often(Instant):
    pass


common = {"dataset": "stripes", "network": "two_layers", "connectivity": "local", "learning_rate": 1e-2, "epochs": 2,
          "batch_size": 20, "padding": 1}
register_recipe(Run(name="stripes_local", **common), "Two layers that tell stripes apart.")
register_recipe(Run(name="stripes_sleep", sleep_every=1, sleep_rule="often", **common))
register_table("stripes", {"LC": "stripes_local", "LC that sleeps": "stripes_sleep"}, caption="two layers")
"""


@pytest.fixture(autouse=True)
def _registered_here_only(monkeypatch):
    """What a test registers is gone after it."""
    for known in (registry.NETWORKS, registry.RULES, registry.DATASETS):
        monkeypatch.setattr(known, "_found", dict(known._found))
    monkeypatch.setattr(registry, "_LOADED", set())
    for name in (RECIPES, REGISTERED_TABLES):
        for key in set(name):
            monkeypatch.setitem(name, key, name[key])
    before = [set(RECIPES), set(REGISTERED_TABLES), list(TABLES)]
    yield
    for known, kept in zip((RECIPES, REGISTERED_TABLES), before, strict=False):
        for key in set(known) - kept:
            del known[key]
    TABLES[:] = before[2]


def small(**changes) -> Run:
    plain = Run("mine", "digits", connectivity="local", learning_rate=1e-2, network="three_layers", epochs=1, padding=0)
    return plain.changed(**changes)


def test_what_an_extension_registers_is_trained_swept_listed_and_put_into_a_table(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_stripes.py").write_text(EXTENSION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLEEPCONV_EXTENSIONS", "my_stripes.py")
    assert main(["train", "stripes_local"]) == 0
    assert main(["sweep", "stripes"]) == 0
    assert "2 runs: 1 done, 1 done before" in capsys.readouterr().out
    assert main(["table", "stripes", "--json"]) == 0
    (block,) = json.loads(capsys.readouterr().out)
    assert [(row["row"], row["seeds"]) for row in block["rows"]] == [("LC", [0]), ("LC that sleeps", [0])]
    assert block["rows"][1]["top1_difference"] == block["rows"][1]["top1"] - block["rows"][0]["top1"]
    main(["table", "stripes"])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "Stripes, stripes, two layers: scale 1"
    assert "paper" not in " ".join(shown)
    main(["list", "--dataset", "stripes"])
    assert "stripes_sleep" in capsys.readouterr().out
    del sys.modules["my_stripes"]


def test_an_unknown_network_or_rule_is_refused_when_the_run_is_made():
    with pytest.raises(ValueError, match="there is no network 'resnet21'; did you mean 'resnet20'?"):
        small(network="resnet21")
    with pytest.raises(ValueError, match="there is no sleep rule 'zzz'; there are instant.*SLEEPCONV_EXTENSIONS"):
        small(sleep_rule="zzz")


def test_a_registered_network_dataset_and_rule_train_a_run(tmp_path):
    @register_network("plain")
    def plain(channels, classes):
        return nn.Sequential(nn.Conv2d(channels, 2, 3), nn.Flatten(), nn.Linear(2 * 36, classes))

    @register_dataset("halves", held_out=4)
    def halves(data_dir, *, train=True, complete=True):
        labels = torch.arange(20 if train else 10) % 2
        pixels = (255 * labels).to(torch.uint8)[:, None, None, None].repeat(1, 3, 8, 8)
        return Images(pixels, labels, ("dark", "bright"))

    @register_rule("one_filter")
    def one_filter(border="all"):
        return Instant(period=1, border=border)

    run = small(
        dataset="halves", network="plain", sleep_every=1, sleep_rule="one_filter", sleep_options={"border": "all"}
    )
    assert train(run, tmp_path / "run", quiet=True)["images"] == 10
    assert train(run.changed(tuning=True), tmp_path / "tuned", quiet=True)["images"] == 4
    with pytest.raises(ValueError, match="do not fit the rule 'one_filter'"):
        train(run.changed(sleep_options={"speed": 1}), tmp_path / "wrong", quiet=True)


def test_a_name_is_taken_once_but_a_module_may_be_imported_again():
    def build(channels, classes): ...

    register_network("taken")(build)
    register_network("taken")(build)
    with pytest.raises(ValueError, match="there is already a network 'taken'"):
        register_network("taken")(lambda channels, classes: None)
    with pytest.raises(ValueError, match="there is already a network 'resnet20'"):
        register_network("resnet20")(build)
    with pytest.raises(TypeError, match="a function or a class"):
        register_rule("wrong")(Instant())
    with pytest.raises(TypeError, match="non-empty string"):
        register_rule("")(Instant)


def test_a_recipe_or_table_with_a_name_that_is_taken_is_refused():
    register_recipe(small())
    register_recipe(small(seed=3, scale=0.1))
    assert recipe("mine", seed=2).seed == 2
    with pytest.raises(ValueError, match="already another recipe 'mine'"):
        register_recipe(small(learning_rate=1.0))
    with pytest.raises(ValueError, match="one dataset, got digits, cifar10"):
        register_table("mixed", {"a": "mine", "b": "cifar10_local"})
    with pytest.raises(ValueError, match="already another table or recipe 'miniature'"):
        register_table("miniature", {"a": "mine"})
    with pytest.raises(ValueError, match="a word that begins with a letter, got '14'"):
        register_table("14", {"a": "mine"})


def test_an_entry_point_registers_and_one_that_fails_is_a_warning(tmp_path, monkeypatch):
    (tmp_path / "my_entry.py").write_text(EXTENSION.partition('@register_dataset("stripes")')[0])
    monkeypatch.syspath_prepend(tmp_path)
    entries = [EntryPoint(name, name, registry._GROUP) for name in ("my_entry", "no_such_module")]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries if group == "sleepconv.extensions" else [])
    with pytest.warns(UserWarning, match="the extension no_such_module cannot be imported"):
        assert small(network="two_layers").network == "two_layers"


@pytest.mark.parametrize("place", ["no_such_module", "no_such_file.py"])
def test_an_extension_that_is_named_and_missing_is_one_clear_error(place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLEEPCONV_EXTENSIONS", place)
    assert main(["list"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"sleepconv: the extension {place} cannot be imported:")


def test_workers_get_the_files_of_the_modules_that_registered_something(tmp_path, monkeypatch):
    (tmp_path / "my_own.py").write_text(EXTENSION.partition('@register_dataset("stripes")')[0])
    registry.load_extensions([str(tmp_path / "my_own.py")])
    assert str(tmp_path / "my_own.py") in registry.extensions_for_workers()
    monkeypatch.delitem(sys.modules, "my_own")


def test_the_names_that_are_known_without_pytorch_are_those_that_there_are():
    for known, home in ((registry.NETWORKS, network), (registry.RULES, network), (DATASETS, tasks)):
        assert home.__name__ == known._home
        assert all(known[name] for name in known._own)
        assert [name for name in known._found if registry._is_ours(known[name])] == list(known._own)
