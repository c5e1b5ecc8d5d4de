"""Files written completely or not at all, reads that tell a missing file from a failing disk, and numbers in JSON."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite, isinf
from pathlib import Path
from typing import Any


def write_atomically(target: Path, content: str | bytes) -> None:
    """Write a file so that readers see the old or the new content, never a part; create its folder if needed.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "new" / "note.txt"
    >>> write_atomically(file, "γ")
    >>> file.read_text(encoding="utf-8"), [path.name for path in file.parent.iterdir()]
    ('γ', ['note.txt'])
    """
    with atomic_file(target) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_file(target: Path, draft: Path | None = None) -> Iterator[Path]:
    """Yield the path of a draft that becomes ``target`` when the block succeeds and is removed when it fails.

    The draft is flushed to the disk before it replaces ``target``, and an error of the disk names ``target``. It is
    beside ``target`` unless another path on the same disk is given.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic_file(file) as draft:
    ...     _ = draft.write_text("half")
    ...     raise ValueError("the other half is missing")
    Traceback (most recent call last):
    ValueError: the other half is missing
    >>> list(file.parent.iterdir())
    []
    """
    draft = draft or target.with_name(f".{target.name}.{os.getpid()}.draft")
    for path in (target, draft):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield draft
        with open(draft, "rb+") as written:  # Windows flushes only what is open for writing
            os.fsync(written.fileno())  # otherwise a power cut can leave an empty file
        os.replace(draft, target)
    except OSError as error:
        error.filename = error.filename or os.fspath(target)  # the error of a full disk does not name the file
        raise
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: Path, *, keep_existing: bool = False) -> Iterator[Path]:
    """Yield a draft folder that becomes ``target`` when the block succeeds and is removed when it fails.

    An existing ``target`` is replaced. With ``keep_existing`` it stays instead, for processes that make the same folder
    at the same time: the first to finish may already be reading it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "new" / "notes"
    >>> with atomic_folder(folder) as draft:
    ...     _ = (draft / "note.txt").write_text("γ", encoding="utf-8")
    >>> [path.name for path in folder.parent.iterdir()], [path.name for path in folder.iterdir()]
    (['notes'], ['note.txt'])
    """
    import shutil  # these two are slow to import, and most commands write no folder
    import tempfile

    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        draft = work / "new"
        draft.mkdir()
        yield draft
        if not keep_existing and target.exists():
            target.rename(work / "old")
        try:
            draft.rename(target)
        except OSError:
            if not (keep_existing and target.is_dir()):
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def output_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to write; raise a clear error if it is a folder, or below something that is not one.

    >>> output_file(Path(__file__) / "table.md")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    NotADirectoryError: ...files.py is a file; name a folder, or a path below one
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file, or a path below the folder")
    output_folder(path.parent)
    return path


def output_folder(path: str | os.PathLike[str]) -> Path:
    """Return the path of a folder to write to, which need not exist; raise a clear error if it cannot be one.

    >>> output_folder("no/such/folder").name
    'folder'
    """
    path = Path(path)
    for part in (path, *path.parents):
        if part.is_dir():
            break
        if part.exists() or part.is_symlink():
            raise NotADirectoryError(f"{part} is a file; name a folder, or a path below one")
    return path


def read_if_there(file: Path) -> bytes | None:
    """Return the content of a file, or None if it does not exist; any other failure is an error.

    >>> import tempfile
    >>> read_if_there(Path(tempfile.mkdtemp()) / "nothing") is None
    True
    """
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        error.filename = error.filename or os.fspath(file)  # the error of a failing disk may not name the file
        raise


def size_if_there(file: Path) -> int | None:
    """Return the size of a file in bytes, or None if it does not exist; any other failure is an error.

    >>> import tempfile
    >>> size_if_there(Path(tempfile.mkdtemp()) / "nothing") is None
    True
    """
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise a ValueError for a number that is too large for a float, instead of returning infinity.

    >>> parse_json('{"top1": 1e999}')
    Traceback (most recent call last):
    ValueError: the number 1e999 is too large
    """
    return json.loads(text, parse_float=_float, parse_int=_int)


def json_number(value: float) -> float | str:
    """Return a number as JSON can hold it: those it lacks become "inf", "-inf" or "nan", which ``float`` reads.

    >>> [json_number(value) for value in (0.25, float("inf"), float("-inf"), float("nan"))]
    [0.25, 'inf', '-inf', 'nan']
    """
    return value if isfinite(value) else str(value)


def _float(text: str) -> float:
    if isinf(value := float(text)):
        raise ValueError(f"the number {text if len(text) < 20 else text[:16] + '...'} is too large")
    return value


def _int(text: str) -> int:
    _float(text)
    return int(text)
