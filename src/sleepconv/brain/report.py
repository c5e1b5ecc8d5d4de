"""From runs and recordings to a table, a figure and records."""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

from sleepconv.brain import table
from sleepconv.brain.candidates import candidates
from sleepconv.brain.readers import read_folder
from sleepconv.brain.records import Record
from sleepconv.brain.scoring import score
from sleepconv.data.locations import StrPath, write_atomically

NOTE = """\
Scores: V1, V2 and V4 (r / ceiling)², IT ρ / ceiling, behaviour κ / κ of two people; ± standard deviation over splits.
In brackets: Table 3 of the paper, ImageNet-trained networks on the Brain-Score benchmarks of 2021. Bold: the best
trained network. The ceiling is that of r, ρ and κ."""


def score_runs(
    runs: Sequence[StrPath],
    data: StrPath,
    out: StrPath,
    *,
    untrained: bool = False,
    with_pixels: bool = False,
    layers: Sequence[str] | None = None,
    data_dir: StrPath | None = None,
) -> list[Record]:
    """Score the finished runs at and below these paths on all datasets of the folder ``data``."""
    datasets = read_folder(Path(data))
    networks = candidates(runs, untrained=untrained, with_pixels=with_pixels, layers=layers, data_dir=data_dir)
    return score(networks, datasets, Path(out), data_dir=data_dir)


def as_text(records: Sequence[Record]) -> str:
    """The table in the form of Table 3, and what lies behind it."""
    parts = [table.as_markdown(records), NOTE, table.details(records), table.behaviour_details(records)]
    parts += [f"Not scored: {line}" for line in table.missing(records)]
    return "\n\n".join(parts)


def as_json(records: Sequence[Record]) -> str:
    """The table and its records for a script."""
    return json.dumps(table.as_data(records), allow_nan=False)


def write(records: Sequence[Record], folder: StrPath) -> None:
    """Write ``table.md`` and, where matplotlib is installed, ``layers.png`` and ``layers.svg``."""
    folder = Path(folder)
    write_atomically(folder / "table.md", as_text(records) + "\n")
    if importlib.util.find_spec("matplotlib"):
        from sleepconv.brain.figure import draw

        draw(records, folder / "layers")
