"""Checkpoints: safetensors files with checksums, the last two of a run."""

import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sleepconv.files import atomic_file

_KEPT = 2
_HEADER, _DRAFTS, _DAMAGED = "sleepconv", ".draft", ".damaged"
_CHUNK = 2**24


class CorruptCheckpointError(ValueError):
    """A file that differs from what was written.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "cut.safetensors"
    >>> _ = path.write_bytes(b"cut short")
    >>> read_tensors(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sleepconv.experiments.training.checkpoints.CorruptCheckpointError: ...
    """


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write a safetensors file with checksums of every tensor and of the facts; a crash leaves the old file, or none.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.safetensors"
    >>> write_tensors(path, {"two": torch.tensor([2.0])}, {"step": 1})
    >>> read_tensors(path)
    ({'two': tensor([2.])}, {'step': 1})
    """
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    sums = {name: _checksum(value) for name, value in plain.items()}
    header = {"facts": dict(facts), "checksums": sums, "seal": _seal(plain, facts)}
    drafts = path.parent / _DRAFTS
    shutil.rmtree(drafts, ignore_errors=True)  # of a writer that was killed, with what safetensors left there
    try:
        with atomic_file(path, drafts / path.name) as draft:
            save_file(plain, draft, metadata={_HEADER: json.dumps(header)})
            draft.chmod(0o666 & ~_umask())  # safetensors lets nobody else read what it writes
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}") from error
    finally:
        shutil.rmtree(drafts, ignore_errors=True)
    _sync_folder(path.parent)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write_tensors` wrote; raise a CorruptCheckpointError if the file is cut short or altered.

    A disk that does not answer raises an OSError: the file may well be intact.
    """
    _read_through(path)
    try:
        with safe_open(path, framework="pt") as opened:
            header = json.loads((opened.metadata() or {})[_HEADER])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (no dictionary)
        sums, facts = header["checksums"], header["facts"]
    except (SafetensorError, KeyError, ValueError) as error:
        raise CorruptCheckpointError(f"{path} is damaged: {error}") from error
    for name in sums.keys() | tensors.keys():
        if name not in tensors or sums.get(name) != _checksum(tensors[name]):
            raise CorruptCheckpointError(
                f"{path} is damaged: the checksum of {name!r} is not the one it was saved with"
            )
    # Records made before there were seals have none.
    if header.get("seal", _seal(tensors, facts)) != _seal(tensors, facts):
        raise CorruptCheckpointError(
            f"{path} is damaged: its facts or the tensors' types are not those it was saved with"
        )
    return tensors, facts


class Checkpoints:
    """The last checkpoints of a run, one file each, named by the optimizer steps taken.

    >>> import tempfile
    >>> checkpoints = Checkpoints(Path(tempfile.mkdtemp()))
    >>> for step in (10, 20, 30):
    ...     checkpoints.write(step, {"x": torch.tensor([step])}, {"step": step})
    >>> [path.name for path in checkpoints.paths()]
    ['step-00000030.safetensors', 'step-00000020.safetensors']
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def paths(self) -> list[Path]:
        """Return the files, the newest first, without those that were set aside."""
        return self._matching("step-*.safetensors")

    def set_aside(self) -> list[Path]:
        """Return the files that were found damaged, the newest first."""
        return self._matching(f"step-*{_DAMAGED}")

    def write(self, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Write a checkpoint, then remove all but the last two."""
        write_tensors(self.folder / f"step-{step:08d}.safetensors", tensors, facts)
        for old in self.paths()[_KEPT:]:
            old.unlink()

    def clear(self) -> None:
        """Remove all checkpoints of a finished run, except those that were set aside."""
        for path in self.paths():
            path.unlink()
        shutil.rmtree(self.folder / _DRAFTS, ignore_errors=True)
        if self.folder.is_dir() and not os.listdir(self.folder):
            self.folder.rmdir()

    def newest(self, say: Callable[[str], object]) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
        """Return path, tensors and facts of the newest intact checkpoint, or None.

        Newer ones that are damaged are set aside, so that they do not count among the last two, and reported.
        """
        for path in self.paths():
            try:
                return path, *read_tensors(path)
            except CorruptCheckpointError as error:
                aside = path.with_suffix(_DAMAGED)
                os.replace(path, aside)
                say(f"{error}; it was set aside as {aside.name}")
        return None

    def _matching(self, pattern: str) -> list[Path]:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        return sorted((self.folder / name for name in names if fnmatch(name, pattern)), reverse=True)


def _read_through(path: Path) -> None:
    """Read a file once, so that a failing disk raises an error here and does not kill the process later."""
    try:
        with open(path, "rb", buffering=0) as file:
            while file.read(_CHUNK):
                pass
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        raise


def _seal(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> int:
    """Return a checksum of everything but the bytes of the tensors."""
    layouts = {name: [str(value.dtype), list(value.shape)] for name, value in sorted(tensors.items())}
    return zlib.crc32(json.dumps([layouts, dict(facts)], sort_keys=True).encode())


def _checksum(value: Tensor) -> int:
    bytes_of_it: Any = value.reshape(-1).view(torch.uint8).numpy()
    return zlib.crc32(bytes_of_it)


def _umask() -> int:
    """Return the process's umask, which Python can only read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
