"""Every name on the page from paper to code exists."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from sleepconv.cli import _parser
from sleepconv.experiments.paper import RECIPES, SEARCHES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/paper-to-code.md").read_text()
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ") and "in the paper" not in line]
NAMES = sorted({name for row in ROWS for cell in row[1:] for name in re.findall(r"`([^`]+)`", cell)})


def find(name: str) -> object:
    """The object of a dotted name: a module's, or a member of something in a module."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def names_of_tests(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("sleepconv.")])
def test_function_exists(name):
    find(name)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("tests/")])
def test_test_exists(name):
    path, _, function = name.partition("::")
    assert not function or function in names_of_tests(ROOT / path)
    assert names_of_tests(ROOT / path)


@pytest.mark.parametrize("command", [name for name in NAMES if name.startswith("sleepconv ")])
def test_command_is_understood(command):
    words = command.split()[1:]
    _parser().parse_args(words)
    if words[0] == "sweep":
        assert words[1] in SEARCHES or words[1].startswith("table")


@pytest.mark.parametrize("name", [name for name in NAMES if "." not in name and " " not in name and "/" not in name])
def test_recipe_exists(name):
    assert name in RECIPES


def test_a_missing_name_is_noticed():
    with pytest.raises(AttributeError):
        find("sleepconv.functional.no_such_function")
    with pytest.raises(ModuleNotFoundError):
        find("nosuchpackage.function")


def test_every_row_names_a_function_and_a_test():
    for paper, function, test, _ in ROWS:
        assert "`sleepconv." in function, paper
        assert "`tests/" in test, paper


def test_every_figure_table_and_numbered_equation_of_the_paper_has_a_row():
    said = " ".join(row[0] for row in ROWS)
    wanted = [f"Eq. {n}" for n in range(1, 10)] + [f"Fig. {n}" for n in range(1, 7)]
    wanted += ["Table 1 (and 5)", "Table 2", "Table 3", "Table 4", "Table 6", "Tables 7–9", "Tables 10–12", "Table 13"]
    assert [name for name in wanted if name not in said] == []
