"""Imports point one way."""

import ast
from pathlib import Path

import sleepconv

ORDER = [
    "files",
    "kernels",
    "functional",
    "simulation",
    "nn",
    "sleep",
    "optim",
    "models",
    "data",
    "training",
    "recipes",
    "sweep",
    "paper",
    "brain",
    "bench",
    "report",
    "demo",
    "cli",
    "__main__",
]
ONLY_FUNCTIONAL = "simulation"
ROOT = Path(sleepconv.__file__).parent


def imported_folders(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sleepconv"):
            names |= {node.module.split(".")[1]} if "." in node.module else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("sleepconv.")}
    return names


def test_no_folder_imports_one_that_stands_above_it():
    for path in ROOT.rglob("*.py"):
        here = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if here in ("__init__", "testing"):
            continue
        above = set(ORDER[ORDER.index(here) + 1 :])
        assert not imported_folders(path) & above, f"{path} imports from above"


def test_the_simulation_uses_only_functions_and_files():
    for path in (ROOT / ONLY_FUNCTIONAL).rglob("*.py"):
        assert imported_folders(path) <= {"files", "functional", ONLY_FUNCTIONAL}, f"{path} imports more than that"
