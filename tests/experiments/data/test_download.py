"""Downloads from a real HTTP server on this machine, and archives."""

import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sleepconv.experiments.data.description import Download
from sleepconv.experiments.data.download import DownloadError, fetch, unpack

CONTENT = bytes(range(256)) * 4000


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT; what it does wrong is set on the server."""

    def do_GET(self):
        server = self.server
        server.requests.append(self.path)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.end_headers()
            return
        if self.path in ("/404", "/503"):
            self.send_error(int(self.path[1:]))
            return
        self.send_content(server)

    def send_content(self, server):
        self.send_response(200)
        self.send_header("Content-Length", str(len(server.content)))
        self.end_headers()
        if server.pause_after:
            self.wfile.write(server.content[: server.pause_after])
            server.resume.wait(120)
            return
        self.wfile.write(server.content[: server.cut_after.pop(0)] if server.cut_after else server.content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.content, running.cut_after, running.requests = CONTENT, [], []
        running.pause_after, running.resume = 0, threading.Event()
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        running.url = f"http://127.0.0.1:{running.server_port}"
        yield running
        running.resume.set()
        running.shutdown()


def download_of(server, path: str = "/file") -> Download:
    return Download("archive.bin", server.url + path, hashlib.md5(CONTENT).hexdigest())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_complete_and_verified(server, tmp_path):
    assert fetch(download_of(server), tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["archive.bin"]


def test_a_redirect_is_followed(server, tmp_path):
    assert fetch(download_of(server, "/moved"), tmp_path).read_bytes() == CONTENT


def test_an_interrupted_download_is_tried_again(server, tmp_path):
    server.cut_after = [1000, 5000]
    assert fetch(download_of(server), tmp_path).read_bytes() == CONTENT
    assert len(server.requests) == 3
    assert names(tmp_path) == ["archive.bin"]


def test_a_download_interrupted_for_good_leaves_nothing_and_the_next_command_succeeds(server, tmp_path):
    server.cut_after = [1000, 1000, 1000]
    with pytest.raises(DownloadError, match=r"cannot download http.*/file \(.*\); run the same command again"):
        fetch(download_of(server), tmp_path)
    assert names(tmp_path) == []
    assert fetch(download_of(server), tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["archive.bin"]


def test_ctrl_c_in_the_middle_leaves_nothing(server, tmp_path):
    server.content = CONTENT + bytes(1 << 20)
    server.pause_after = len(CONTENT)
    program = """
import sys
from pathlib import Path
from sleepconv.experiments.data.description import Download
from sleepconv.experiments.data.download import fetch
fetch(Download("archive.bin", sys.argv[1], "0" * 32), Path(sys.argv[2]))
"""
    command = [sys.executable, "-c", program, f"{server.url}/file", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not any(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "archive.bin" not in names(tmp_path)
        os.kill(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in error
    assert names(tmp_path) == []


def test_a_full_disk_is_not_called_a_network_error_and_leaves_nothing(server, tmp_path, limit_files):
    limit_files(100_000)
    expected = rf"no space left in {tmp_path}: .*; free some, or choose another folder with --data-dir"
    with pytest.raises(OSError, match=expected):
        fetch(download_of(server), tmp_path)
    assert names(tmp_path) == []


def test_a_corrupted_download_is_refused_and_removed(server, tmp_path):
    server.content = b"x" + CONTENT[1:]
    with pytest.raises(DownloadError, match=r"does not have the official MD5 .*; the download was removed"):
        fetch(download_of(server), tmp_path)
    assert names(tmp_path) == []
    assert len(server.requests) == 1


def test_a_file_placed_by_hand_is_verified_and_never_removed(server, tmp_path):
    (tmp_path / "archive.bin").write_bytes(CONTENT)
    assert fetch(download_of(server), tmp_path) == tmp_path / "archive.bin"
    (tmp_path / "archive.bin").write_bytes(b"wrong")
    with pytest.raises(DownloadError, match=r"archive\.bin has MD5 .* but the official one is"):
        fetch(download_of(server), tmp_path)
    assert names(tmp_path) == ["archive.bin"]
    assert server.requests == []


@pytest.mark.parametrize(("status", "reason", "requests"), [(404, "Not Found", 1), (503, "Service Unavailable", 3)])
def test_only_what_may_pass_is_asked_for_again(server, tmp_path, status, reason, requests):
    with pytest.raises(DownloadError, match=rf"\({status} {reason}\)"):
        fetch(download_of(server, f"/{status}"), tmp_path)
    assert len(server.requests) == requests
    assert names(tmp_path) == []


def test_without_network_the_file_to_place_by_hand_is_named(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file.tar.gz"
        with pytest.raises(DownloadError) as caught:
            fetch(Download("file.tar.gz", url, "0" * 32), tmp_path)
    message = str(caught.value)
    assert "Without a network" in message
    assert str(tmp_path / "file.tar.gz") in message
    assert "0" * 32 in message
    assert "\n" not in message


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


def test_a_tar_archive_is_unpacked_into_its_folder(tmp_path):
    folder = tarfile.TarInfo("set")
    folder.type = tarfile.DIRTYPE
    archive = tar_of(tmp_path / "a.tar.gz", [folder, "set/one.bin", "set/deep/two.bin"])
    unpack(archive, tmp_path / "set")
    assert (tmp_path / "set" / "deep" / "two.bin").read_bytes() == b"data"
    assert names(tmp_path) == ["a.tar.gz", "set"]


def test_a_zip_archive_is_unpacked_into_its_folder(tmp_path):
    archive = zip_of(tmp_path / "a.zip", {"set/": b"", "set/one.txt": b"1"})
    unpack(archive, tmp_path / "set")
    assert (tmp_path / "set" / "one.txt").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["../evil", "set/../../evil", "/tmp/evil", "set\\..\\evil", "C:\\evil", "evil", "set"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_members_that_lead_elsewhere_are_refused_and_nothing_is_left(tmp_path, name, kind):
    if kind == "tar":
        archive = tar_of(tmp_path / "a.tar.gz", ["set/good.bin", name])
    else:
        archive = zip_of(tmp_path / "a.zip", {"set/good.bin": b"1", name: b"2"})
    with pytest.raises(ValueError, match="is refused: its member"):
        unpack(archive, tmp_path / "set")
    assert names(tmp_path) == [archive.name]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, kind):
    archive = tar_of(tmp_path / "a.tar.gz", ["set/good.bin", link("set/bad", "set/good.bin", kind)])
    with pytest.raises(ValueError, match=r"'set/bad' is a link or a device"):
        unpack(archive, tmp_path / "set")
    assert names(tmp_path) == ["a.tar.gz"]


def test_a_link_in_a_zip_becomes_an_ordinary_file(tmp_path):
    archive = zip_of(tmp_path / "a.zip", {"set/link": b"/etc/passwd"}, mode=0o120777)
    unpack(archive, tmp_path / "set")
    assert not (tmp_path / "set" / "link").is_symlink()
    assert (tmp_path / "set" / "link").read_bytes() == b"/etc/passwd"


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
    assert names(tmp_path) == [name]


def test_an_empty_archive_is_refused(tmp_path):
    with pytest.raises(ValueError, match="contains no files"):
        unpack(tar_of(tmp_path / "a.tar.gz", []), tmp_path / "set")


def test_what_was_there_stays_when_unpacking_fails(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "old").write_text("old")
    with pytest.raises(ValueError, match="refused"):
        unpack(tar_of(tmp_path / "a.tar.gz", ["set/new", "../evil"]), tmp_path / "set")
    assert (tmp_path / "set" / "old").read_text() == "old"
