"""`sleepconv data get`: download, verify, unpack; and the same words where there is no network."""

import os
from pathlib import Path

from sleepconv.data.archives import unpack
from sleepconv.data.description import Dataset, Download
from sleepconv.data.download import fetch
from sleepconv.data.inspection import check, is_complete
from sleepconv.data.locations import StrPath, data_directory


def get(dataset: Dataset, data_dir: StrPath | None = None, *, mirror: str | None = None) -> str:
    """Bring a dataset to the data directory and say in a sentence what was done.

    Args:
        dataset: which one.
        data_dir: where to; see `data_directory`.
        mirror: take the files from this address instead of the official one; checksums stay official.
    """
    root = data_directory(data_dir)
    folder = root / dataset.folder
    if not dataset.folder:
        return f"{dataset.title}: {dataset.advice}"
    if not dataset.downloads:
        return _placed_by_hand(dataset, root)
    if is_complete(dataset, folder):
        return (
            f"{dataset.title} is already in {folder} and was left as it is; `sleepconv data check {dataset.name}` "
            "verifies it. To get it anew, move that folder away first"
        )
    if not os.access(_existing(root), os.W_OK | os.X_OK) or not _existing(root).is_dir():
        raise PermissionError(f"cannot write in {root}; make it writable or name another folder with --data-dir")
    if dataset.unpack:
        for download in dataset.downloads:
            _fetch_and_unpack(download, root, folder, mirror)
    else:
        for download in dataset.downloads:
            fetch(download, folder, url=_address(download, mirror))
    if not is_complete(dataset, folder):
        raise ValueError(f"the archive of {dataset.title} lacks files; run `sleepconv data check {dataset.name}`")
    return f"{dataset.title} is in {folder}; the official checksum was verified"


def _placed_by_hand(dataset: Dataset, root: Path) -> str:
    """What to say of a dataset that cannot be downloaded: that it is here, or what is wrong and where it comes from."""
    report = check(dataset, root)
    said = "; ".join(line.strip() for line in report.lines)
    if not report.usable:
        raise FileNotFoundError(said)
    return f"{dataset.title} is already here; {said}"


def _fetch_and_unpack(download: Download, root: Path, folder: Path, mirror: str | None) -> None:
    placed_by_hand = (root / download.filename).exists()
    archive = fetch(download, root, url=_address(download, mirror))
    unpack(archive, folder)
    if not placed_by_hand:
        archive.unlink()


def _address(download: Download, mirror: str | None) -> str | None:
    return None if mirror is None else f"{mirror.rstrip('/')}/{download.filename}"


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())
