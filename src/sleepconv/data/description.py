"""What is known of a dataset before it is read: its files, their sizes, their official checksums."""

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
