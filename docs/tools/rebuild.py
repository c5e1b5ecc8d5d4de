"""Tables in prose, made again from the records in results/: ``python docs/tools/rebuild.py``.

A block of a page begins with the command that prints it, hidden from readers, and ends with a mark::

    <!-- sleepconv table 1 --dataset cifar10 --runs results --format markdown -->
    ...
    <!-- end -->
"""

import re
import shlex
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

from sleepconv.cli import main

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/results.md",
    "docs/brain.md",
    "docs/ideas/learning-speed.md",
    "docs/ideas/without-backprop.md",
)
BLOCK = re.compile(r"(<!-- (sleepconv [^\n]*) -->\n).*?(<!-- end -->)", re.S)


def rebuilt(page: str) -> str:
    """Return the text of a page with every block printed again; a note stands only below the first of its tables."""
    notes: set[str] = set()
    return BLOCK.sub(lambda block: f"{block[1]}\n{_without(notes, _printed(block[2]))}\n\n{block[3]}", page)


def _without(notes: set[str], printed: str) -> str:
    """Leave out the notes that the page already has, and remember the others."""
    paragraphs = [part for part in printed.split("\n\n") if part not in notes]
    notes.update(part for part in paragraphs if not part.startswith(("|", "**")))
    return "\n\n".join(paragraphs)


def _printed(command: str) -> str:
    said = StringIO()
    with chdir(ROOT), redirect_stdout(said):
        code = main(shlex.split(command)[1:])
    if code != 0:
        raise RuntimeError(f"{command} ended with exit code {code}")
    return said.getvalue().strip()


if __name__ == "__main__":
    for name in PAGES:
        path = ROOT / name
        path.write_text(rebuilt(path.read_text()))
        print(name)
