"""The page's numbers are the package's, and the built page is one small file."""

import gzip
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page():
    return tool("explore").page()


def assert_alike(found, expected, where):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected:
            assert_alike(found[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, value in enumerate(expected):
            assert_alike(found[i], value, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), where
    else:
        assert found == expected, where


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node here")
def test_the_modules_agree_with_the_package():
    tests = sorted(str(path) for path in Path(__file__).parent.glob("*.test.mjs"))
    done = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_checked_in_vectors_are_what_the_package_computes():
    golden = tool("golden")
    assert_alike(json.loads(json.dumps(golden.golden())), json.loads(golden.GOLDEN.read_text()), "golden")


def test_the_embedded_digits_are_those_of_the_demo():
    golden = tool("golden")
    assert golden.DIGITS.read_text() == golden.digits_module()


def test_the_page_is_one_file_of_at_most_150_kb_gzipped(page):
    assert len(gzip.compress(page.encode())) < 150_000
    assert not re.findall(r"^(?:import|export) ", page, re.M)
    assert not re.findall(r'<(?:script|img|iframe)[^>]* src=|<link[^>]* href="(?!data:)|@import|url\((?!"data:)', page)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node here")
def test_no_name_is_used_by_two_modules(tmp_path):
    joined = tmp_path / "page.mjs"
    joined.write_text(tool("explore").script("main.js"))
    done = subprocess.run(["node", "--check", joined], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_part_has_its_equation_and_links_to_its_idea_and_function(page):
    parts = re.findall(r"<section.*?</section>", page, re.S)
    assert len(parts) == 4
    for part in parts:
        assert "<math" in part
        assert 'href="../ideas/' in part
        assert 'href="../api/' in part
