"""Downloads against a real HTTP server on this machine."""

import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sleepconv.experiments.data.description import Download
from sleepconv.experiments.data.acquisition import DownloadError, fetch

CONTENT = bytes(range(256)) * 4000


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT; what it does wrong is set on the server."""

    def do_GET(self):
        server = self.server
        server.requests.append((self.path, self.headers.get("Range")))
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.end_headers()
            return
        if self.path == "/gone":
            self.send_error(404)
            return
        self.send_content(server)

    def send_content(self, server):
        wanted = self.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.ranges else 0
        if start >= len(server.content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(server.content)}")
            self.end_headers()
            return
        body = server.content[start:]
        self.send_response(206 if wanted and server.ranges else 200)
        if wanted and server.ranges:
            end = len(server.content) - 1
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(server.content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.cut_after.pop(0)] if server.cut_after else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.content, running.ranges, running.cut_after, running.requests = CONTENT, True, [], []
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        running.url = f"http://127.0.0.1:{running.server_port}"
        yield running
        running.shutdown()


def download_of(server, path: str = "/file") -> Download:
    return Download("archive.bin", server.url + path, hashlib.md5(CONTENT).hexdigest())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_verified(server, tmp_path):
    assert fetch(download_of(server), tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["archive.bin"]


def test_a_redirect_is_followed(server, tmp_path):
    assert fetch(download_of(server, "/moved"), tmp_path).read_bytes() == CONTENT


def test_an_interrupted_download_goes_on_by_itself_where_it_stopped(server, tmp_path):
    server.cut_after = [1000, 5000]
    assert fetch(download_of(server), tmp_path).read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests] == [None, "bytes=1000-", "bytes=6000-"]


def test_a_download_interrupted_for_good_is_resumed_by_the_next_command(server, tmp_path):
    server.cut_after = [1000, 1000, 1000]
    with pytest.raises(DownloadError, match="run the same command again to go on from there"):
        fetch(download_of(server), tmp_path)
    assert names(tmp_path) == ["archive.bin.part"]
    assert fetch(download_of(server), tmp_path).read_bytes() == CONTENT
    assert server.requests[-1][1] == "bytes=3000-"
    assert names(tmp_path) == ["archive.bin"]


def test_a_full_disk_says_where_and_what_arrived_is_kept(server, tmp_path, limit_files):
    limit_files(100_000)
    with pytest.raises(OSError, match=rf"no room in {tmp_path}: .*; free some, or name other folders with --data-dir"):
        fetch(download_of(server), tmp_path)
    assert names(tmp_path) == ["archive.bin.part"]


def test_a_redirected_download_resumes_too(server, tmp_path):
    (tmp_path / "archive.bin.part").write_bytes(CONTENT[:777])
    assert fetch(download_of(server, "/moved"), tmp_path).read_bytes() == CONTENT
    assert server.requests[-1] == ("/file", "bytes=777-")


def test_a_server_that_cannot_resume_sends_all_again(server, tmp_path):
    server.ranges = False
    (tmp_path / "archive.bin.part").write_bytes(CONTENT[:500])
    assert fetch(download_of(server), tmp_path).read_bytes() == CONTENT


def test_a_part_that_is_already_whole_is_only_verified(server, tmp_path):
    (tmp_path / "archive.bin.part").write_bytes(CONTENT)
    assert fetch(download_of(server), tmp_path).read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    (tmp_path / "archive.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(download_of(server), tmp_path).read_bytes() == CONTENT


def test_a_corrupted_download_is_refused_and_removed(server, tmp_path):
    server.content = b"x" + CONTENT[1:]
    with pytest.raises(DownloadError, match=r"arrived with MD5 .* but the official one is .* it was removed"):
        fetch(download_of(server), tmp_path)
    assert names(tmp_path) == []


def test_a_file_placed_by_hand_is_verified_and_never_removed(server, tmp_path):
    (tmp_path / "archive.bin").write_bytes(CONTENT)
    assert fetch(download_of(server), tmp_path) == tmp_path / "archive.bin"
    (tmp_path / "archive.bin").write_bytes(b"wrong")
    with pytest.raises(DownloadError, match=r"archive\.bin has MD5 .* but the official one is"):
        fetch(download_of(server), tmp_path)
    assert names(tmp_path) == ["archive.bin"]
    assert server.requests == []


def test_a_missing_page_is_not_asked_for_again(server, tmp_path):
    with pytest.raises(DownloadError, match="Not Found"):
        fetch(download_of(server, "/gone"), tmp_path)
    assert len(server.requests) == 1
    assert names(tmp_path) == []


def test_a_full_disk_is_not_called_a_network_error(server, tmp_path):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "archive.bin.part").symlink_to(full)
    with pytest.raises(OSError, match="No space left on device"):
        fetch(download_of(server), tmp_path)


def test_without_network_the_file_to_place_by_hand_is_named(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file.tar.gz"
        with pytest.raises(DownloadError) as caught:
            fetch(Download("file.tar.gz", url, "0" * 32), tmp_path)
    message = str(caught.value)
    assert "without network" in message
    assert str(tmp_path / "file.tar.gz") in message
    assert "0" * 32 in message
