"""MkDocs hook: equations become MathML while the site is built, so that pages need no script and no network."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

# What pymdownx.arithmatex leaves in the page: \(inline\) and \[block\].
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)


def on_page_content(content: str, **_: Any) -> str:
    """Replace every equation of a page."""
    return EQUATION.sub(_as_mathml, content)


def _as_mathml(found: re.Match[str]) -> str:
    tag, source = found[1], " ".join(html.unescape(found[2]).split())
    display = "block" if tag == "div" else "inline"
    return f'<{tag} class="equation" title="{html.escape(source)}">{convert(source, display=display)}</{tag}>'
