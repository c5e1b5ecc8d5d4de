"""A small table as text, Markdown, LaTeX or HTML."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

MISSING = "–"
# A backslash goes first, since the others bring new ones.
_LATEX = {"\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", MISSING: "--", "−": "$-$"}


@dataclass(frozen=True)
class Sheet:
    """Cells as they are shown, with a title above and notes below.

    >>> print(Sheet("Two", ["row", "value"], [["a", "1.0"], ["b", "–"]]).text())
    Two
    row  value
    a      1.0
    b        –
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default=())

    def text(self) -> str:
        """Return aligned columns, the first to the left, the others to the right."""
        lines = [list(self.columns), *[list(row) for row in self.rows]]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        shown = [
            "  ".join(
                [line[0].ljust(widths[0]), *[cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True)]]
            )
            for line in lines
        ]
        title = [self.title] if self.title else []
        return "\n".join([*title, *[line.rstrip() for line in shown], *self.notes])

    def markdown(self) -> str:
        """Return a GitHub table."""
        lines = [self.columns, ["---", *["---:"] * (len(self.columns) - 1)], *self.rows]
        shown = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
        notes = [line for note in self.notes for line in ("", note)]
        title = [f"**{self.title}**", ""] if self.title else []
        return "\n".join([*title, *shown, *notes])

    def latex(self) -> str:
        """Return a table with booktabs' rules."""
        body = [" & ".join(map(_latex_escaped, row)) + r" \\" for row in [self.columns, *self.rows]]
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{_latex_escaped(' '.join([self.title + '.', *self.notes]))}}}",
                rf"\begin{{tabular}}{{@{{}}l{'r' * (len(self.columns) - 1)}@{{}}}}",
                r"\toprule",
                body[0],
                r"\midrule",
                *body[1:],
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )

    def html(self) -> str:
        """Return an HTML table whose first column names the rows; a row's name may be broken after an underscore.

        >>> Sheet("", ["run", "top-1"], [["a<b", "91.2"]]).html().count("a&lt;b")
        1
        """
        caption = f"<caption>{escape(self.title)}</caption>\n" if self.title else ""
        head = "".join(f'<th scope="col">{escape(text)}</th>' for text in self.columns)
        body = "\n".join(
            f'<tr><th scope="row">{escape(name).replace("_", "_<wbr>")}</th>'
            + "".join(f"<td>{escape(text)}</td>" for text in cells)
            + "</tr>"
            for name, *cells in self.rows
        )
        table = f"<table>\n{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        return f'<div class="wide">{table}</div>' + "".join(f"\n<p>{escape(note)}</p>" for note in self.notes)


def _latex_escaped(text: str) -> str:
    """Escape what is special in TeX.

    >>> print(_latex_escaped("88.3 % – a_b"))
    88.3 \\% -- a\\_b
    """
    for special, escaped in _LATEX.items():
        text = text.replace(special, escaped)
    return text


def number(value: float | None, form: str = ".1f") -> str:
    """Format a number, or return a dash if it is missing.

    >>> number(-0.04), number(-7.4), number(None)
    ('0.0', '−7.4', '–')
    """
    if value is None:
        return MISSING
    shown = format(value, form)
    return shown.lstrip("-") if not float(shown) else shown.replace("-", "−", 1) if value < 0 else shown
