"""Records of scores: JSON that tables and figures are made from, without scoring again."""

import json
from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Any

from sleepconv.files import parse_json, write_atomically

Record = dict[str, Any]


def write(folder: Path, record: Record) -> Path:
    """Write a record as ``folder/name.json``, whole or not at all."""
    path = folder / f"{record['name']}.json"
    write_atomically(path, json.dumps(record, indent=1, allow_nan=False) + "\n")
    return path


def read(path: Path) -> Record:
    """Read one record, and say so if the file is none."""
    try:
        record = parse_json(path.read_text())
        if all(isinstance(record[key], str) for key in ("name", "row", "kind")) and isinstance(record["scores"], list):
            return record
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is not a record of `sleepconv brain score`; move it away or name another folder")


def read_all(paths: Iterable[Path | str]) -> list[Record]:
    """The records in these files and folders, in the order of their names; two of one network must be the same."""
    files = [file for path in map(Path, paths) for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not files:
        raise FileNotFoundError(f"no record in {', '.join(map(str, paths))}; `sleepconv brain score` writes them")
    found: dict[str, tuple[Path, Record]] = {}
    for file in files:
        record = read(file)
        first, known = found.setdefault(record["name"], (file, record))
        if record != known and identity(record) != identity(known):
            raise ValueError(
                f"{first} and {file} are different records of {record['name']}, with other weights, data or settings; "
                "leave one out"
            )
    return [record for _, record in found.values()]


def identity(record: Record) -> tuple[Any, ...]:
    """What makes two records of one name the same: the network, the data, the settings; not the time that it took."""
    return record.get("fingerprint", record["scores"]), record.get("data"), record.get("settings")


def conditions(record: Record) -> str:
    """What a network was scored on and how: only scores with the same conditions can be compared or averaged.

    >>> record = {"data": {"mine": "1f3a"}, "settings": {"folds": 10}, "scores": []}
    >>> conditions(record) == conditions(record | {"data": {"mine": "77c0"}})
    False
    """
    names = sorted(entry["dataset"] for entry in record["scores"])
    return json.dumps([names, record.get("data"), record.get("settings")], sort_keys=True)


def check_finite(entry: Record) -> None:
    """Refuse an entry in which something is no number, before it can spoil a record."""
    for key, value in entry.items():
        if isinstance(value, dict):
            check_finite(value)
        elif isinstance(value, float) and not isfinite(value):
            raise ValueError(f"{key} is {value}: there are too few images, or neurons that answer to too few of them")


def rounded(value: Any) -> Any:
    """The same with six digits in every number.

    >>> rounded({"r": [0.12345678]})
    {'r': [0.123457]}
    """
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
