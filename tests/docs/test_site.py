"""The site builds without a warning, and says what the package says."""

import argparse
import ast
import re
from pathlib import Path

import pytest

from sleepconv.cli import _parser

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
COMMAND = re.compile(r"^(?:\s*)(sleepconv [^#\n]*)", re.M)


def verbs_of(parser: argparse.ArgumentParser, name: str = "sleepconv") -> dict[str, str]:
    """Every verb that `--help` lists, or its actions where it has some, with its help."""
    found: dict[str, str] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for verb in helps:
                found |= verbs_of(action.choices[verb], f"{name} {verb}") or {f"{name} {verb}": helps[verb]}
    return found


def commands_in(page: Path) -> list[str]:
    """The commands in code blocks, also on continued lines, and those between backticks."""
    text = re.sub(r"\\\n\s*", "", page.read_text())
    blocks = re.findall(r"^```\n(.*?)^```|^((?: {4}.*\n)+)", text, re.M | re.S)
    listed = [command for block in blocks for command in COMMAND.findall("".join(block))]
    return [command.strip() for command in listed + re.findall(r"`(sleepconv [a-z][^`]*)`", text)]


def test_the_site_builds_without_a_warning(site):
    assert (site / "index.html").exists()


def test_equations_are_drawn_without_a_script_and_none_is_left_as_source(site):
    for path in site.rglob("*.html"):
        page = path.read_text()
        assert 'class="arithmatex"' not in page, path
        assert ".. math::" not in page, path
    assert (site / "api/sleep.html").read_text().count("<math") >= 3


def test_captions_of_figures_stand_on_their_pages_as_text(site):
    page = (site / "ideas/robustness.html").read_text()
    assert page.count('<span class="caption">') == 6
    assert '<span class="caption">Each neuron sees noise' in page


def test_breaks_in_long_names_leave_tags_whole(site):
    page = (site / "api/data.html").read_text()
    assert "<wbr>span" not in page
    assert "functional.<wbr>" in (site / "paper-to-code.html").read_text()


def test_pages_load_nothing_from_elsewhere(site):
    for path in site.rglob("*.html"):
        assert not re.findall(r'(?:src|<link[^>]* href)="(https?://[^"]*)"', path.read_text()), path


def test_the_explorable_page_is_one_file_and_its_links_lead_somewhere(site):
    assert [path.name for path in (site / "explore").iterdir()] == ["index.html"]
    links = re.findall(r'href="\.\./([^"]*)"', (site / "explore/index.html").read_text())
    assert len(links) > 10
    for page, _, anchor in (link.partition("#") for link in links):
        assert not anchor or f'id="{anchor}"' in (site / page).read_text(), f"{page}#{anchor}"
        assert (site / page).exists()


def test_the_first_page_and_the_readme_lead_to_the_explorable_page(site):
    assert 'href="explore/index.html"' in (site / "index.html").read_text()
    assert "docs/explore/" in (ROOT / "README.md").read_text()


def test_search_needs_neither_a_server_nor_the_network(site):
    assert (site / "search/search_index.js").exists()
    page = (site / "api/sleep.html").read_text()
    [shim] = re.findall(r'<script src="([^"]*iframe-worker[^"]*)"', page)
    assert (site / "api" / shim).exists()


def test_the_page_about_the_command_line_has_every_verb_with_its_help():
    rows = dict(re.findall(r"^\| `(sleepconv [^`]*)` \| (.*) \|$", (ROOT / "docs/command-line.md").read_text(), re.M))
    assert rows == verbs_of(_parser())


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_every_command_in_the_documents_is_understood(page):
    verbs = verbs_of(_parser())
    for command in commands_in(page):
        sketch = command in verbs or re.search(r"[|…]|\b(VERB|NAME|N|RUN)\b|^sleepconv (data|brain)$", command)
        if not sketch:
            _parser().parse_args([word.strip("'") for word in command.split()[1:]])


def test_the_documents_have_commands_to_check():
    assert len({command for page in PAGES for command in commands_in(page)}) > 40


WITH_CODE = [page for page in PAGES if page.parent.name == "ideas" or page.stem in ("analysis", "own-models")]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_python_of_every_idea_and_of_the_analysis_runs(page):
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
        exec(compile(ast.parse(block), str(page), "exec"), names)


def test_the_python_of_the_quick_start_runs():
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/index.md").read_text(), re.S):
        exec(block, names)
