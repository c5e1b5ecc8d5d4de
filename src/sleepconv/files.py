"""Arrays in files, mapped to memory, whose room on the disk is taken before anything is written to them.

A write to a mapped page for which the disk has no room raises no error: it ends the process with SIGBUS.
"""

import errno
import json
import os
from math import isinf
from pathlib import Path
from typing import IO, Any

import numpy as np


def write_atomically(target: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never a part; its folder is made if need be.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "new" / "note.txt"
    >>> write_atomically(file, "γ")
    >>> file.read_text(encoding="utf-8"), [path.name for path in file.parent.iterdir()]
    ('γ', ['note.txt'])
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # else a power cut can leave the new name with nothing in it
        os.replace(draft, target)
    except OSError as error:
        error.filename = error.filename or os.fspath(target)  # a full disk does not say which file it was
        raise
    finally:
        draft.unlink(missing_ok=True)


def read_if_there(file: Path) -> bytes | None:
    """What a file holds, or None if there is none; a disk that does not answer is an error, not an absent file.

    >>> import tempfile
    >>> read_if_there(Path(tempfile.mkdtemp()) / "nothing") is None
    True
    """
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        error.filename = error.filename or os.fspath(file)  # a disk that fails in the middle does not say which file
        raise


def size_if_there(file: Path) -> int | None:
    """A file's bytes, or None if there is none; a disk that does not answer is an error here too.

    >>> import tempfile
    >>> size_if_there(Path(tempfile.mkdtemp()) / "nothing") is None
    True
    """
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says; a number that is too large for a float is a ValueError, before anybody computes with it.

    >>> parse_json('{"top1": 1e999}')
    Traceback (most recent call last):
    ValueError: the number 1e999 is too large
    """
    return json.loads(text, parse_float=_float, parse_int=_int)


def _float(text: str) -> float:
    if isinf(value := float(text)):
        raise ValueError(f"the number {text if len(text) < 20 else text[:16] + '...'} is too large")
    return value


def _int(text: str) -> int:
    _float(text)
    return int(text)


CHUNK_BYTES = 1 << 24
# What a file system says that cannot take room without writing.
CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def mapped_array(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.memmap:
    """A new ``.npy`` file as an array that can be written to; on a full disk an `OSError`, and no file.

    >>> import tempfile
    >>> array = mapped_array(Path(tempfile.mkdtemp()) / "zeros.npy", np.uint8, (2, 3))
    >>> array.tolist()
    [[0, 0, 0], [0, 0, 0]]
    """
    try:
        array: np.memmap = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        _take_room(path)
    except OSError as error:
        path.unlink(missing_ok=True)
        error.filename = error.filename or os.fspath(path)
        raise
    return array


def save_array(path: Path, values: np.ndarray) -> None:
    """Write an array as an ``.npy`` file; on a full disk an `OSError` that says so, and no file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.npy"
    >>> save_array(path, np.array([1, 2]))
    >>> np.load(path).tolist()
    [1, 2]
    """
    mapped_array(path, values.dtype, values.shape)[...] = values


def _take_room(path: Path) -> None:
    """Give every byte of a file, which may have holes, its place on the disk."""
    with path.open("r+b") as file:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
                return
            except OSError as error:
                if error.errno not in CANNOT_RESERVE:
                    raise
        _write_again(file)


def _write_again(file: IO[bytes]) -> None:
    """Where room can only be taken by writing: write what is there, the holes as zeros."""
    while content := file.read(CHUNK_BYTES):
        file.seek(-len(content), os.SEEK_CUR)
        file.write(content)
        file.flush()
