"""MkDocs hook: long names in tables may break after their dots, slashes and underscores."""

import re
from typing import Any

CELL = re.compile(r"<td.*?</td>", re.S)
NAME = re.compile(r"(?<=[>_])([\w.-]+?)_(?=[\w.-]+</td>)")  # the whole of a cell, like cifar10_sleep_every_10
CODE = re.compile(r"(<code>)([^<]*)(</code>)")


def on_post_page(output: str, **_: Any) -> str:
    """Let the code and the names of runs in every table cell of a page break."""
    return CELL.sub(lambda cell: CODE.sub(_breakable, NAME.sub(r"\1_<wbr>", cell[0])), output)


def _breakable(code: re.Match[str]) -> str:
    return code[1] + re.sub(r"(::|[._/])(?=\w)", r"\1<wbr>", code[2]) + code[3]
