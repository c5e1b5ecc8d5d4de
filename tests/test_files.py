import os
import subprocess
import sys
from pathlib import Path

import pytest

from sleepconv.files import atomic_file, parse_json, write_atomically

FULL = """
import resource, signal, sys
from pathlib import Path
from sleepconv.files import write_atomically
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
write_atomically(Path(sys.argv[1]), "new" * 10_000)
"""


def test_a_file_is_on_the_disk_before_it_takes_the_place_of_the_old_one(tmp_path: Path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, real=real, name=name: calls.append(name) or real(*args))
    write_atomically(tmp_path / "note.txt", "new")
    assert calls == ["fsync", "replace"]


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of a file's size to stand for a full disk")
def test_a_full_disk_leaves_the_old_file_and_names_it(tmp_path: Path):
    file = tmp_path / "note.txt"
    write_atomically(file, "old")
    done = subprocess.run([sys.executable, "-c", FULL, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert str(file) in done.stderr.splitlines()[-1]
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_block_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path):
    file = tmp_path / "figure.png"
    write_atomically(file, "old")

    def interrupted():
        with atomic_file(file) as draft:
            draft.write_bytes(b"half a picture")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + 400 * "0", "-1" + 9000 * "0"])
def test_a_number_that_no_float_can_hold_is_refused(number: str):
    with pytest.raises(ValueError, match=r"^the number -?1[e0-9.]+ is too large$"):
        parse_json(f'{{"top1": [{number}]}}')
    assert parse_json("[1.5, -3, 0.0]") == [1.5, -3, 0.0]
