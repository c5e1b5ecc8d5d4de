"""What CONTRIBUTING says is so."""

import doctest
import re
from pathlib import Path

import pytest

import sleepconv
from sleepconv.experiments.runs import registry
from sleepconv.experiments.training import network

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


@pytest.fixture(scope="module")
def example():
    """The names that the worked example defines."""
    names: dict = {"__name__": "worked_example"}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.S):
        exec(block, names)
    return names


def test_the_worked_examples_own_test_passes(example):
    example["test_a_nap_halves_the_distance_to_the_mean"]()


def test_the_worked_example_refuses_what_cannot_work(example):
    with pytest.raises(ValueError, match="`fraction` must be above 0"):
        example["Nap"](fraction=0)


def test_the_worked_examples_docstring_has_an_example_that_runs(example):
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    [found] = finder.find(example["Nap"], "Nap", module=False, globs=dict(example))
    assert runner.run(found) == (0, 4)


def test_a_rule_or_network_that_is_named_in_both_places_can_be_asked_for():
    for known, ours in ((registry.RULES, network._OUR_RULES), (registry.NETWORKS, network._OUR_NETWORKS)):
        assert list(ours) == list(known._own)
    assert "`experiments.runs.registry.RULES`" in TEXT
    assert "`experiments.training.network`" in TEXT


def test_every_folder_of_the_package_is_on_the_page():
    root = Path(sleepconv.__file__).parent
    folders = {path.parent.name for pattern in ("*", "experiments/*") for path in root.glob(f"{pattern}/__init__.py")}
    assert [name for name in sorted(folders) if not re.search(rf"\b{name}\b", TEXT)] == []


def test_paths_that_it_names_exist():
    named = re.findall(r"`((?:docs|tests|experiments|sleep|kernels|functional|nn|models|cli)/[\w/]*(?:\.\w+)?)`", TEXT)
    places = [ROOT, ROOT / "src/sleepconv"]
    assert named
    assert [name for name in named if not any((place / name).exists() for place in places)] == []
