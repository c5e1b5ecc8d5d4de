"""`Dataset`: where the files of a dataset come from, where they belong and which function reads them."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

StrPath = str | os.PathLike[str]
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CHOOSE = "choose another folder with --data-dir or SLEEPCONV_DATA (SLEEPCONV_CACHE for what is computed from the data)"


INCOMPLETE = "--incomplete (in Python, complete=False) accepts that"
"""How to use a dataset that has less than the official one."""


@dataclass(frozen=True)
class Download:
    """A file to download, with the MD5 that its publisher states."""

    filename: str
    url: str
    md5: str


@dataclass(frozen=True)
class File:
    """A file that the reader needs, with its official size in bytes and MD5 where they are known."""

    name: str
    size: int | None = None
    md5: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A dataset: its name, its files and its reader. ``DATASETS`` has them all, with those that were registered.

    Args:
        name: the name on the command line and in `load_task`.
        title: the name in messages.
        folder: the folder in the data directory; "" for a dataset that comes with a package.
        read: the reader. ``read(data_dir, train=True, complete=True)`` returns `Images` (or `ImageFolders`).
        train_images: the official number of training images, if there is one.
        test_images: the official number of test images, if there is one.
        held_out: how many training images ``load_task(..., tuning=True)`` holds out for validation; by default a tenth.
        downloads: archives of ``folder``, or with ``unpack=False`` the files in it.
        files: the files that must be in ``folder``, plain or gzipped.
        unpack: whether ``downloads`` are archives.
        system_folder: where a package of the operating system installs the files; used if ``folder`` is missing.
        list_files: what `check` calls instead of ``read``, for a reader that takes long or writes to the disk; the
            result needs only a length and ``classes``.
        advice: how else to get the dataset.
    """

    name: str
    title: str
    folder: str
    read: Callable[..., Any]
    train_images: int | None = None
    test_images: int | None = None
    held_out: int | None = None
    downloads: tuple[Download, ...] = ()
    files: tuple[File, ...] = ()
    unpack: bool = True
    system_folder: Path | None = None
    list_files: Callable[..., Any] | None = None
    advice: str = ""

    def directory(self, data_dir: Path) -> Path:
        """Return the folder that holds the files, or would hold them."""
        own = data_dir / self.folder
        return self.system_folder if self.system_folder and self.system_folder.is_dir() and not own.is_dir() else own

    def is_complete(self, folder: Path) -> bool:
        """Return whether every file that the reader needs is in ``folder``, whatever its content."""
        return folder.is_dir() and all(find_file(folder / file.name) for file in self.files)


def data_directory(explicit: StrPath | None = None) -> Path:
    """Return the folder of the datasets: ``explicit``, else ``$SLEEPCONV_DATA``, else ``~/.cache/sleepconv``.

    >>> data_directory("/datasets").as_posix()
    '/datasets'
    """
    if explicit is not None:
        return Path(explicit).expanduser()
    if named := os.environ.get("SLEEPCONV_DATA"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sleepconv"


def cache_directory(data_dir: Path) -> Path:
    """Return the folder for what is computed from the data: ``$SLEEPCONV_CACHE``, else ``computed`` beside the data.

    >>> cache_directory(Path("/datasets")).as_posix()
    '/datasets/computed'
    """
    named = os.environ.get("SLEEPCONV_CACHE")
    return Path(named).expanduser() if named else data_dir / "computed"


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Create ``folder``; if it is not writable or its disk fills up in the block, raise an error that says what to do.

    Other errors in the block pass unchanged.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise OSError(f"cannot write to {folder}: {error.strerror or error}; make it writable, or {_CHOOSE}") from error
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        raise OSError(f"no space left in {folder}: {error.strerror}; free some, or {_CHOOSE}") from error


def find_file(path: Path) -> Path | None:
    """Return ``path``, or its gzipped form if only that exists, or None."""
    return next((found for found in (path, path.with_name(f"{path.name}.gz")) if found.is_file()), None)


def require_file(path: Path, dataset: str) -> Path:
    """Return ``path`` if it is a file; otherwise raise an error that says how to get it."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing; run `sleepconv data get {dataset}`, "
            f"or `sleepconv data check {dataset}` to see what to place where"
        )
    return path


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 text file."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: not a text file ({error.reason}); restore it") from error


def md5_of_file(path: Path) -> str:
    """Return the MD5 of a file: what the publishers state, against accidents rather than attacks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
