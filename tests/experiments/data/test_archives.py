import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from sleepconv.experiments.data.acquisition import unpack


def tar_of(path: Path, members: list[tarfile.TarInfo | str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            info = tarfile.TarInfo(member) if isinstance(member, str) else member
            info.size = 4 if info.isreg() else 0
            tar.addfile(info, io.BytesIO(b"data"))
    return path


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_of(path: Path, members: dict[str, bytes], mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            packed.writestr(info, content)
    return path


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_tar_archive_is_unpacked_into_its_folder(tmp_path):
    folder = tarfile.TarInfo("set")
    folder.type = tarfile.DIRTYPE
    archive = tar_of(tmp_path / "a.tar.gz", [folder, "set/one.bin", "set/deep/two.bin"])
    unpack(archive, tmp_path / "set")
    assert (tmp_path / "set" / "deep" / "two.bin").read_bytes() == b"data"
    assert left_behind(tmp_path) == ["a.tar.gz", "set"]


def test_a_zip_archive_is_unpacked_into_its_folder(tmp_path):
    archive = zip_of(tmp_path / "a.zip", {"set/": b"", "set/one.txt": b"1"})
    unpack(archive, tmp_path / "set")
    assert (tmp_path / "set" / "one.txt").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["../evil", "set/../../evil", "/tmp/evil", "set\\..\\evil", "C:\\evil", "evil"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_members_that_lead_elsewhere_are_refused_and_nothing_is_left(tmp_path, name, kind):
    if kind == "tar":
        archive = tar_of(tmp_path / "a.tar.gz", ["set/good.bin", name])
    else:
        archive = zip_of(tmp_path / "a.zip", {"set/good.bin": b"1", name: b"2"})
    with pytest.raises(ValueError, match="is refused: its member"):
        unpack(archive, tmp_path / "set")
    assert left_behind(tmp_path) == [archive.name]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, kind):
    archive = tar_of(tmp_path / "a.tar.gz", ["set/good.bin", link("set/bad", "set/good.bin", kind)])
    with pytest.raises(ValueError, match=r"'set/bad' is a link or a device"):
        unpack(archive, tmp_path / "set")
    assert left_behind(tmp_path) == ["a.tar.gz"]


def test_links_in_a_zip_are_refused(tmp_path):
    archive = zip_of(tmp_path / "a.zip", {"set/link": b"/etc/passwd"}, mode=0o120777)
    with pytest.raises(ValueError, match="is a link or a device"):
        unpack(archive, tmp_path / "set")


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_a_truncated_archive_is_named_and_nothing_is_left(tmp_path, name):
    archive = tmp_path / name
    if name.endswith("zip"):
        zip_of(archive, {"set/one": b"1" * 5000})
    else:
        tar_of(archive, ["set/one"])
    archive.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(ValueError, match="is truncated or damaged"):
        unpack(archive, tmp_path / "set")
    assert left_behind(tmp_path) == [name]


def test_an_empty_archive_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no files"):
        unpack(tar_of(tmp_path / "a.tar.gz", []), tmp_path / "set")


def test_what_was_there_stays_when_unpacking_fails(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "old").write_text("old")
    with pytest.raises(ValueError, match="refused"):
        unpack(tar_of(tmp_path / "a.tar.gz", ["set/new", "../evil"]), tmp_path / "set")
    assert (tmp_path / "set" / "old").read_text() == "old"
