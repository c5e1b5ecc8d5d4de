"""Unpack archives safely: nothing outside the target, no links, and all of it or nothing."""

import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from sleepconv.data.locations import replaced_when_done


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
