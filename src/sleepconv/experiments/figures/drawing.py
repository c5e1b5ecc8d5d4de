"""How every figure looks and is saved."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

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
    """Matplotlib without a screen, or an error that says how to get it."""
    try:
        import matplotlib
    except ImportError:
        raise RuntimeError("figures need matplotlib: pip install 'sleepconv[figures]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``, each whole or not at all, the same bytes for the same figure."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind, metadata in [("png", {"Software": None}), ("svg", {"Date": None})]:
        path = stem.with_name(f"{stem.name}.{kind}")
        partial = stem.with_name(f"{path.name}.partial")
        figure.savefig(partial, format=kind, dpi=200, metadata=metadata)
        paths.append(partial.replace(path))
    return paths
