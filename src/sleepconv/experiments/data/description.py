"""What is known of a dataset before it is read: its files, their sizes, their official checksums."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path


StrPath = str | os.PathLike[str]
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ELSEWHERE = "name other folders with --data-dir or SLEEPCONV_DATA (data) and SLEEPCONV_CACHE (what is computed from it)"


def data_directory(explicit: StrPath | None = None) -> Path:
    """The folder of the datasets: ``explicit``, else ``$SLEEPCONV_DATA``, else ``~/.cache/sleepconv``.

    >>> data_directory("/datasets").as_posix()
    '/datasets'
    """
    if explicit is not None:
        return Path(explicit).expanduser()
    if named := os.environ.get("SLEEPCONV_DATA"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sleepconv"


def cache_directory(data_dir: Path) -> Path:
    """The folder for what is computed from the data: ``$SLEEPCONV_CACHE``, else ``computed`` beside the data.

    >>> cache_directory(Path("/datasets")).as_posix()
    '/datasets/computed'
    """
    named = os.environ.get("SLEEPCONV_CACHE")
    return Path(named).expanduser() if named else data_dir / "computed"


@contextlib.contextmanager
def replaced_when_done(target: Path, *, keep: bool = False) -> Iterator[Path]:
    """Give a temporary folder beside ``target`` that takes its place on success and vanishes on failure.

    With ``keep`` a folder that is there by then stays: another process has made the same, and may be reading it.
    """
    with writable(target.parent):
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        new = work / "new"
        with room_in(target.parent):
            new.mkdir()
            yield new
        if keep:
            _rename_unless_there(new, target)
            return
        if target.exists():
            target.rename(work / "old")
        new.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _rename_unless_there(new: Path, target: Path) -> None:
    try:
        new.rename(target)
    except OSError:
        if not target.is_dir():
            raise


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Make the folder; where it cannot be written in, say what else can be chosen."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise OSError(
            f"cannot write in {folder}: {error.strerror or error}; make it writable, or {ELSEWHERE}"
        ) from error


@contextlib.contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Say of a full disk where it is full and what else can be chosen; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise OSError(f"no room in {folder}: {error.strerror}; free some, or {ELSEWHERE}") from error


# A checksum against accidents, which is what the publishers state.
_md5 = partial(hashlib.md5, usedforsecurity=False)


@dataclass(frozen=True)
class Download:
    """One file to fetch, with the checksum its publisher states."""

    filename: str
    url: str
    md5: str


@dataclass(frozen=True)
class File:
    """One file that the reader needs: its official size in bytes and MD5, where they are known."""

    name: str
    size: int | None = None
    md5: str | None = None


@dataclass(frozen=True)
class Dataset:
    """Where a dataset comes from and where it belongs: ``DATA_DIR/folder``.

    ``downloads`` are archives that unpack to ``folder``, or, with ``unpack=False``, the files themselves.
    """

    name: str
    title: str
    folder: str
    downloads: tuple[Download, ...] = ()
    files: tuple[File, ...] = ()
    unpack: bool = True
    advice: str = ""


def md5_of(content: bytes) -> str:
    """The MD5 of some bytes.

    >>> md5_of(b"")
    'd41d8cd98f00b204e9800998ecf8427e'
    """
    return _md5(content).hexdigest()


def md5_of_file(path: Path) -> str:
    """The MD5 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, _md5).hexdigest()


def require_file(path: Path, dataset: str) -> Path:
    """Return ``path`` if it is a file; otherwise say what is missing and how to get it."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing; run `sleepconv data get {dataset}`, "
            f"or `sleepconv data check {dataset}` to see what to place where"
        )
    return path


def read_lines(path: Path) -> list[str]:
    """The lines of a text file; one that is no text is named."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: it is no text ({error.reason}); restore it") from error
