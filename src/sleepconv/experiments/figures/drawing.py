"""Style of all figures, and how they are saved."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from sleepconv.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ["#0072b2", "#d55e00", "#009e73"]
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


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg`` atomically; the same figure gives the same bytes."""
    paths = []
    for kind, metadata in [("png", {"Software": None}), ("svg", {"Date": None})]:
        path = stem.with_name(f"{stem.name}.{kind}")
        with atomic_file(path) as draft:
            figure.savefig(draft, format=kind, dpi=200, metadata=metadata)
        paths.append(path)
    return paths
