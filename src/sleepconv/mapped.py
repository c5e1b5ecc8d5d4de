"""Arrays in files, mapped to memory, whose room on the disk is taken before anything is written to them.

A write to a mapped page for which the disk has no room raises no error: it ends the process with SIGBUS.
"""

import errno
import os
from pathlib import Path
from typing import IO, Any

import numpy as np

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
