"""Fetch a file over HTTP: resumed where it stopped, checked, and in place only when it is whole."""

import http.client
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from sleepconv.data.description import Download, md5_of_file
from sleepconv.data.locations import room_in

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
