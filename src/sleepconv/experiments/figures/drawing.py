"""Style of all figures, and how they are saved."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from sleepconv.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ["#0072b2", "#d55e00", "#009e73"]
THEORY_DASH = (0, (4, 3))
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "sleepconv",
    "svg.fonttype": "none",
}


def load_pyplot() -> ModuleType:
    """Import matplotlib without a display; raise a RuntimeError that says how to install it."""
    try:
        import matplotlib
    except ImportError:
        raise RuntimeError("figures need matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def write_caption(figure: Figure, caption: str, *, width: float = 5.4, plot: float = 3.3) -> None:
    """Put the caption below the axes, and make the page high enough for both (sizes in inches)."""
    figure.set_label(caption.strip())
    for text in (", 1)", " = ", " ms", "Eq. ", " > "):  # do not break lines there
        caption = caption.replace(text, text.replace(" ", "\u00a0"))
    lines = textwrap.wrap(caption.strip(), width=round(18.5 * width))
    under = 0.135 * len(lines) + 0.05
    figure.set_size_inches(width, plot + under)
    figure.tight_layout(rect=(0, under / (plot + under), 1, 1))
    figure.text(0.11 / width, 0.012, "\n".join(lines), fontsize=7, va="bottom", linespacing=1.25)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg`` atomically; the same figure gives the same bytes.

    The caption is in their metadata too, so that a page can show it as text where the picture is small.
    """
    paths, caption = [], {"Description": str(figure.get_label())} if figure.get_label() else {}
    for kind, metadata in [("png", {"Software": None} | caption), ("svg", {"Date": None} | caption)]:
        path = stem.with_name(f"{stem.name}.{kind}")
        with atomic_file(path) as draft:
            figure.savefig(draft, format=kind, dpi=200, metadata=metadata)
        paths.append(path)
    return paths
