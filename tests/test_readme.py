"""What the README shows works as it stands."""

import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_python_of_the_readme_runs():
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.S):
        exec(block.replace("512", "8"), names)


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 120
