"""`sleepconv data get`: download, verify, unpack; and the same words where there is no network."""

import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from sleepconv.experiments.data.description import replaced_when_done
import http.client
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from sleepconv.experiments.data.description import Download, md5_of_file
from sleepconv.experiments.data.description import room_in
import os
from pathlib import Path

from sleepconv.experiments.data.description import Dataset, Download
from sleepconv.experiments.data.inspection import check, is_complete
from sleepconv.experiments.data.description import StrPath, data_directory


def unpack(archive: Path, target: Path) -> None:
    """Unpack a .zip or .tar archive whose files lie in one folder named like ``target``.

    ``target`` appears when all is unpacked; after an error there is nothing.
    """
    members = _zip_members if archive.suffix == ".zip" else _tar_members
    with replaced_when_done(target) as new:
        count = 0
        try:
            for name, content in members(archive):
                place = new.joinpath(*_safe_parts(archive, name, target.name))
                place.parent.mkdir(parents=True, exist_ok=True)
                with content, place.open("xb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
                count += 1
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{archive} is truncated or damaged ({error}); remove it and get it again") from error
        if not count:
            raise ValueError(f"{archive} holds no files; remove it and get it again")


def _safe_parts(archive: Path, name: str, top: str) -> tuple[str, ...]:
    """The path of a member below the top folder; anything that could lead elsewhere is refused."""
    path = PurePosixPath(name)
    windows = PureWindowsPath(name)
    if path.is_absolute() or windows.drive or windows.root or ".." in path.parts or ".." in windows.parts:
        raise ValueError(f"{archive} is refused: its member {name!r} would be written outside the target folder")
    if len(path.parts) < 2 or path.parts[0] != top:
        raise ValueError(f"{archive} is refused: its member {name!r} is not in the folder {top!r} as it should be")
    return path.parts[1:]


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            if member.isdir():
                continue
            content = tar.extractfile(member) if member.isreg() else None
            if content is None:
                raise ValueError(f"{archive} is refused: its member {member.name!r} is a link or a device")
            yield member.name, content


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            if member.is_dir():
                continue
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG):
                raise ValueError(f"{archive} is refused: its member {member.filename!r} is a link or a device")
            yield member.filename, packed.open(member)


ATTEMPTS = 3
TIMEOUT_S = 30
CHUNK_BYTES = 1 << 20
# A full disk or an unwritable folder is an OSError too, but no reason to try again.
NETWORK_ERRORS = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)


class DownloadError(RuntimeError):
    """A download that failed; what arrived is kept for the next attempt unless it was wrong."""


def fetch(download: Download, folder: Path, *, url: str | None = None) -> Path:
    """Download to ``folder/filename``; what is already there is checked, what is half there is resumed.

    Args:
        download: the file and its official checksum.
        folder: where the file goes.
        url: another place to get it from; the checksum stays the same.

    Returns:
        the path of the verified file.
    """
    target = folder / download.filename
    if target.exists():
        _verify(target, download)
        return target
    partial = folder / f"{download.filename}.part"
    folder.mkdir(parents=True, exist_ok=True)
    source = url or download.url
    for attempt in range(ATTEMPTS):
        try:
            if _transfer(source, partial):
                break
        except NETWORK_ERRORS as error:
            if attempt == ATTEMPTS - 1 or not _worth_repeating(error):
                raise DownloadError(_unreachable(error, source, target, download)) from error
    else:
        raise DownloadError(f"{source} broke off {ATTEMPTS} times; run the same command again to go on from there")
    _verify(partial, download)
    partial.replace(target)
    return target


def _transfer(url: str, partial: Path) -> bool:
    """Append what is still missing to ``partial``; return whether the server sent all it had promised."""
    have = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "sleepconv"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            return _nothing_left(error, partial, have)
        raise
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT and _starts_at(response, have)
        start = have if resumed else 0
        promised = response.headers.get("Content-Length")
        total = start + int(promised) if promised else None
        with (
            room_in(partial.parent),
            partial.open("ab" if resumed else "wb") as file,
            tqdm(total=total, initial=start, unit="B", unit_scale=True, desc=partial.stem, disable=None) as bar,
        ):
            while chunk := response.read(CHUNK_BYTES):
                file.write(chunk)
                bar.update(len(chunk))
    return total is None or partial.stat().st_size == total


def _starts_at(response: http.client.HTTPResponse, position: int) -> bool:
    return (response.headers.get("Content-Range") or "").startswith(f"bytes {position}-")


def _nothing_left(error: urllib.error.HTTPError, partial: Path, have: int) -> bool:
    """The server has no byte after ``have``: either all is here, or the part belongs to another file."""
    if (error.headers.get("Content-Range") or "").endswith(f"/{have}"):
        return True
    partial.unlink()
    return False


def _worth_repeating(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500
    return isinstance(error, ConnectionError | TimeoutError | http.client.HTTPException)


def _verify(path: Path, download: Download) -> None:
    found = md5_of_file(path)
    if found == download.md5:
        return
    if path.name.endswith(".part"):
        path.unlink()
        raise DownloadError(
            f"{download.filename} arrived with MD5 {found}, but the official one is {download.md5}; "
            "it was removed: run the same command again, or take it from elsewhere"
        )
    raise DownloadError(
        f"{path} has MD5 {found}, but the official one is {download.md5}; remove it and run the same command again"
    )


def _unreachable(error: Exception, url: str, target: Path, download: Download) -> str:
    reason = getattr(error, "reason", None) or error
    return (
        f"cannot download from {urlsplit(url).netloc} ({reason}); without network, get {download.url} "
        f"on another machine, place it at {target} (MD5 {download.md5}) and run the same command again"
    )


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
