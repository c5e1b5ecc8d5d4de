"""A full disk is one clear error, and nothing half-made stays behind."""

import subprocess
import sys

import numpy as np
import pytest

from sleepconv.experiments.data import tiny_imagenet
from sleepconv.mapped import mapped_array, save_array

ON_A_SMALL_DISK = """
mount -t tmpfs -o size=64k tmpfs "$1" || exit 77
"$2" - "$1" <<'END'
import sys
from pathlib import Path
import numpy as np
from sleepconv.mapped import mapped_array
folder = Path(sys.argv[1])
try:
    mapped_array(folder / "large.npy", np.uint8, (1 << 20,))[:] = 1
except OSError as error:
    print(error.strerror, list(folder.iterdir()))
END
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system of Linux")
def test_an_array_without_room_is_an_error_and_not_the_end_of_the_process(tmp_path):
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", ON_A_SMALL_DISK, "sh"]
    try:
        done = subprocess.run([*command, str(tmp_path), sys.executable], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if "unshare" in done.stderr or done.returncode == 77:
        pytest.skip(f"no file system can be mounted here: {done.stderr}")
    assert done.stdout == "No space left on device []\n", done.stderr


def test_an_array_has_all_its_room_when_it_is_made(tmp_path):
    for array in (mapped_array(tmp_path / "a.npy", np.uint8, (1 << 20,)), np.empty(0)):
        save_array(tmp_path / "b.npy", array)
        assert np.array_equal(np.load(tmp_path / "b.npy"), array)
    assert (tmp_path / "a.npy").stat().st_blocks * 512 >= 1 << 20


def test_a_file_system_that_takes_room_only_by_writing_gets_the_entire_file(tmp_path, monkeypatch):
    monkeypatch.delattr("os.posix_fallocate", raising=False)
    array = mapped_array(tmp_path / "a.npy", np.uint8, (1 << 20,))
    assert not array.any()
    assert (tmp_path / "a.npy").stat().st_blocks * 512 >= 1 << 20


def test_a_full_disk_leaves_no_cache_and_says_where_another_can_lie(small_tiny_imagenet, data_dir, limit_files):
    limit_files(100_000)
    with pytest.raises(
        OSError, match=r"no space left in .*computed: .*; free some, or choose another folder .*SLEEPCONV_CACHE"
    ):
        tiny_imagenet(data_dir, complete=False)
    assert list((data_dir / "computed").iterdir()) == []
