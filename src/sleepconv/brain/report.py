"""From runs and recordings to a table, a figure and records."""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

from sleepconv.brain import table
from sleepconv.brain.candidates import candidates
from sleepconv.brain.readers import read_folder
from sleepconv.brain.records import Record, read
from sleepconv.brain.scoring import score
from sleepconv.data.locations import StrPath
from sleepconv.files import write_atomically
from sleepconv.paper.rendering import Sheet

TABLE = "table.md"
FIGURES = ("layers.png", "layers.svg")


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
    check_folder(Path(out))
    datasets = read_folder(Path(data))
    networks = candidates(runs, untrained=untrained, with_pixels=with_pixels, layers=layers, data_dir=data_dir)
    return score(networks, datasets, Path(out), data_dir=data_dir)


def check_folder(folder: Path) -> None:
    """Refuse a folder in which something would be replaced that this command did not make."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; --out names a folder")
    for path in sorted(folder.glob("*.json")):
        read(path)
    check_tables(folder)


def check_tables(folder: Path) -> None:
    """Refuse a folder whose table or figures are somebody else's; ours begin with the table's title."""
    try:
        ours = (folder / TABLE).read_text(encoding="utf-8").startswith(f"**{table.TITLE}**")
    except (OSError, UnicodeDecodeError):
        ours = False
    theirs = [name for name in (TABLE, *FIGURES) if (folder / name).exists() and not ours]
    if theirs:
        raise FileExistsError(
            f"{folder / theirs[0]} is there and was not made by `sleepconv brain`, which would replace it; "
            "move it away or name another folder with --out"
        )


def as_text(records: Sequence[Record]) -> str:
    """The table in the form of Table 3, and what lies behind it, in aligned columns."""
    return "\n\n".join([*(sheet.text() for sheet in _sheets(records)), *_not_scored(records)])


def as_markdown(records: Sequence[Record]) -> str:
    """The same for a page."""
    return "\n\n".join([*(sheet.markdown() for sheet in _sheets(records)), *_not_scored(records)])


def _sheets(records: Sequence[Record]) -> list[Sheet]:
    sheets = [table.main_sheet(records), table.detail_sheet(records), table.behaviour_sheet(records)]
    return [sheet for sheet in sheets if sheet.rows]


def _not_scored(records: Sequence[Record]) -> list[str]:
    return [f"Not scored: {line}" for line in table.missing(records)] + [
        f"Scored on other data than {table.usual(records)['name']}: {line}" for line in table.on_other_data(records)
    ]


def as_json(records: Sequence[Record]) -> str:
    """The table and its records for a script."""
    return json.dumps(table.as_data(records), allow_nan=False)


def write(records: Sequence[Record], folder: StrPath) -> None:
    """Write ``table.md`` and, where matplotlib is installed, ``layers.png`` and ``layers.svg``."""
    folder = Path(folder)
    check_tables(folder)
    write_atomically(folder / TABLE, as_markdown(records) + "\n")
    compared = any("layers" in entry for record in records for entry in record["scores"])
    if compared and importlib.util.find_spec("matplotlib"):
        from sleepconv.brain.figure import draw

        draw(records, folder / "layers")
