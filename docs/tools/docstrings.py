"""Griffe extension: equations and examples of docstrings become Markdown."""

import re
from typing import Any

from griffe import Extension, Object

EQUATION = re.compile(r"^([ ]*)\.\. math::[ ]*(.*(?:\n\1[ ]+\S.*)*)", re.M)
INLINE = re.compile(r":math:`(.*?)`")
EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.M)


class MarkdownDocstrings(Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Put equations between dollars and examples into code blocks."""
    text = EQUATION.sub(lambda found: f"{found[1]}$$ {' '.join(found[2].split())} $$", text)
    text = INLINE.sub(r"$\1$", text)
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
