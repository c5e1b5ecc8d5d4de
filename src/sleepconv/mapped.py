"""Memory-mapped arrays in files whose disk space is reserved before anything is written to them.

Writing to a mapped page for which the disk has no space raises no error: it ends the process with SIGBUS.
"""

import errno
import os
from pathlib import Path
from typing import IO, Any

import numpy as np

_CHUNK_BYTES = 1 << 24
# Errors of file systems that cannot reserve space without writing.
_CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def mapped_array(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.memmap:
    """Create a ``.npy`` file and return it as a writable array; on a full disk raise an `OSError` and leave no file.

    >>> import tempfile
    >>> array = mapped_array(Path(tempfile.mkdtemp()) / "zeros.npy", np.uint8, (2, 3))
    >>> array.tolist()
    [[0, 0, 0], [0, 0, 0]]
    """
    try:
        array: np.memmap = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        _reserve_space(path)
    except OSError as error:
        path.unlink(missing_ok=True)
        error.filename = error.filename or os.fspath(path)
        raise
    return array


def save_array(path: Path, values: np.ndarray) -> None:
    """Write an array to a ``.npy`` file; on a full disk raise an `OSError` and leave no file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.npy"
    >>> save_array(path, np.array([1, 2]))
    >>> np.load(path).tolist()
    [1, 2]
    """
    mapped_array(path, values.dtype, values.shape)[...] = values


def _reserve_space(path: Path) -> None:
    """Reserve disk space for every byte of a file, which may have holes."""
    with path.open("r+b") as file:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
                return
            except OSError as error:
                if error.errno not in _CANNOT_RESERVE:
                    raise
        _write_again(file)


def _write_again(file: IO[bytes]) -> None:
    """Reserve space by writing the file's content again, holes as zeros."""
    while content := file.read(_CHUNK_BYTES):
        file.seek(-len(content), os.SEEK_CUR)
        file.write(content)
        file.flush()
