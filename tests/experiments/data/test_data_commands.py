"""The verbs `sleepconv data get | check | show`, run as a user runs them."""

import hashlib
import http.server
import io
import json
import tarfile
import threading
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from sleepconv.cli import main
from sleepconv.experiments.data import DATASETS, load_task
from sleepconv.experiments.data.description import Dataset, Download, File
from sleepconv.experiments.data.download import get
from sleepconv.experiments.data.inspection import contact_sheet


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path):
    """A folder and the address under which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def tar_gz(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return content.getvalue()


def toy(archive: bytes) -> Dataset:
    download = Download("toy.tar.gz", "http://nowhere.invalid/toy.tar.gz", hashlib.md5(archive).hexdigest())
    return Dataset(
        name="toy",
        title="Toy",
        folder="toy-set",
        read=lambda data_dir, *, train=True, complete=True: None,
        train_images=2,
        test_images=1,
        held_out=1,
        downloads=(download,),
        files=(File("a.bin"), File("b.bin")),
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_get_downloads_verifies_and_unpacks_leaving_only_the_data(served, data_dir):
    folder, url = served
    archive = tar_gz({"toy-set/a.bin": b"1", "toy-set/b.bin": b"2"})
    (folder / "toy.tar.gz").write_bytes(archive)
    assert "the official checksum was verified" in get(toy(archive), data_dir, mirror=url)
    assert names(data_dir) == ["toy-set"]
    assert "is already in" in get(toy(archive), data_dir, mirror=url)


def test_get_unpacks_an_archive_placed_by_hand_and_keeps_it(data_dir):
    archive = tar_gz({"toy-set/a.bin": b"1", "toy-set/b.bin": b"2"})
    (data_dir / "toy.tar.gz").write_bytes(archive)
    get(toy(archive), data_dir)
    assert names(data_dir) == ["toy-set", "toy.tar.gz"]


def test_get_from_a_server_with_another_file_keeps_nothing(served, data_dir, capsys):
    folder, url = served
    (folder / "cifar-10-binary.tar.gz").write_bytes(b"something else")
    assert main(["data", "get", "cifar10", "--data-dir", str(data_dir), "--mirror", url]) == 1
    message = capsys.readouterr().err
    assert "c32a1d4ab5d03f1284b67883e8d87530" in message
    assert "Traceback" not in message
    assert names(data_dir) == []


def test_get_without_network_names_the_file_to_place(data_dir, capsys):
    arguments = ["data", "get", "cifar100", "--data-dir", str(data_dir), "--mirror", "http://127.0.0.1:9"]
    assert main(arguments) == 1
    message = capsys.readouterr().err
    assert f"place it at {data_dir / 'cifar-100-binary.tar.gz'}" in message
    assert "03b5dce01913d631647c71ecec9e9cb8" in message


def test_get_of_imagenet_says_where_it_comes_from(data_dir, capsys):
    assert main(["data", "get", "imagenet", "--data-dir", str(data_dir)]) == 1
    assert "https://image-net.org" in capsys.readouterr().err


def test_get_of_an_imagenet_that_is_incomplete_says_what_is_missing_and_where_it_comes_from(
    small_imagenet, data_dir, capsys
):
    assert main(["data", "get", "imagenet", "--data-dir", str(data_dir)]) == 1
    said = capsys.readouterr().err
    assert "has 2 class folders, but ImageNet has 1000" in said
    assert "https://image-net.org" in said
    assert "data check" not in said


def test_a_damaged_dataset_that_get_leaves_alone_is_to_be_moved_away(small_tiny_imagenet, data_dir, capsys):
    command = ["tiny-imagenet", "--data-dir", str(data_dir)]
    assert main(["data", "check", *command]) == 1
    assert f"to do: move {small_tiny_imagenet} away" in capsys.readouterr().out
    assert main(["data", "get", *command]) == 0
    assert "To download it again, move that folder away first" in capsys.readouterr().out
    small_tiny_imagenet.rename(data_dir / "away")
    assert main(["data", "check", *command]) == 1
    assert "to do: move" not in capsys.readouterr().out


def test_get_of_digits_needs_nothing(capsys):
    assert main(["data", "get", "digits"]) == 0
    assert "scikit-learn" in capsys.readouterr().out


def test_get_into_a_file_is_refused(tmp_path, capsys):
    (tmp_path / "occupied").write_text("")
    assert main(["data", "get", "cifar10", "--data-dir", str(tmp_path / "occupied")]) == 1
    assert "cannot write to" in capsys.readouterr().err


def test_check_says_what_is_missing_and_where_to_put_it(data_dir, capsys):
    assert main(["data", "check", "cifar10", "--data-dir", str(data_dir)]) == 1
    said = capsys.readouterr().out
    assert f"missing: {data_dir / 'cifar-10-batches-bin' / 'test_batch.bin'}" in said
    assert f"at {data_dir / 'cifar-10-binary.tar.gz'}" in said


def test_check_names_files_of_the_wrong_size(small_cifar10, data_dir, capsys):
    assert main(["data", "check", "cifar10", "--data-dir", str(data_dir)]) == 1
    assert "data_batch_1.bin has 61,460 bytes, not 30,730,000" in capsys.readouterr().out


def test_check_tells_complete_files_from_official_ones(data_dir, small_cifar100, capsys):
    for name, count in (("train.bin", 50_000), ("test.bin", 10_000)):
        (small_cifar100 / name).write_bytes(bytes(count * 3074))
    assert main(["data", "check", "cifar100", "--data-dir", str(data_dir), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["usable"] is True
    assert report["official"] is False
    assert any("complete, but not the official file" in line for line in report["lines"])


@pytest.mark.parametrize("name", ["tiny-imagenet", "imagenet", "fashion-mnist"])
def test_check_of_an_incomplete_dataset_fails_and_writes_nothing(
    name, data_dir, small_tiny_imagenet, small_imagenet, small_fashion, capsys
):
    before = names(data_dir)
    assert main(["data", "check", name, "--data-dir", str(data_dir)]) == 1
    assert "to do:" in capsys.readouterr().out
    assert names(data_dir) == before


def test_check_reports_a_truncated_gzip_file_and_what_to_do(small_fashion, data_dir, capsys):
    path = small_fashion / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:50])
    assert main(["data", "check", "fashion-mnist", "--data-dir", str(data_dir), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert any(line.startswith(f"cannot be read: {path} is truncated or damaged") for line in report["lines"])
    assert any(line.startswith("to do: ") for line in report["lines"])


def test_a_text_file_that_is_not_text_is_named(small_cifar10, small_tiny_imagenet, data_dir):
    for name, path in {
        "cifar10": small_cifar10 / "batches.meta.txt",
        "tiny-imagenet": small_tiny_imagenet / "wnids.txt",
    }.items():
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(ValueError, match=rf"{path} is damaged: not a text file"):
            load_task(name, data_dir=data_dir, complete=False)


def test_check_of_digits_succeeds_everywhere(capsys):
    assert main(["data", "check", "digits"]) == 0
    assert "1,437 training and 360 test images in 10 classes" in capsys.readouterr().out


def test_show_writes_a_contact_sheet(tmp_path, capsys):
    out = tmp_path / "sheets" / "digits.png"
    assert main(["data", "show", "digits", "--out", str(out), "--padding", "2"]) == 0
    assert str(out) in capsys.readouterr().out
    assert names(out.parent) == ["digits.png"]
    with Image.open(out) as picture:
        assert picture.width > 10 * 24


def test_a_contact_sheet_shows_the_pixels_of_the_images(small_cifar10, data_dir):
    source = load_task("cifar10", data_dir=data_dir, complete=False).train
    sheet = contact_sheet(source, classes=10, images=10)
    shown = {sheet.crop((x, y, x + 64, y + 64)).resize((32, 32), 0).tobytes() for x, y in corners(sheet)}
    stored = {pixels.permute(1, 2, 0).numpy().tobytes() for pixels in source.images.pixels}
    assert shown == stored


def corners(sheet: Image.Image) -> list[tuple[int, int]]:
    """The places of the 10 × 10 cells: counted from the right and lower edges."""
    return [(sheet.width - 6 - 70 * (i + 1) + 0, sheet.height - 70 * (j + 1)) for i in range(10) for j in range(10)]


def test_show_refuses_a_folder_as_picture(tmp_path, capsys):
    assert main(["data", "show", "digits", "--out", str(tmp_path)]) == 1
    assert "is a folder; name a file" in capsys.readouterr().err


def test_a_typo_in_a_verb_is_one_line(capsys):
    assert main(["data", "show", "cifar-10"]) == 1
    assert capsys.readouterr().err == "sleepconv: there is no dataset 'cifar-10'; did you mean 'cifar10'?\n"


def test_the_help_lists_every_dataset(capsys):
    with pytest.raises(SystemExit):
        main(["data", "--help"])
    listed = " ".join(capsys.readouterr().out.split())
    assert f"Datasets: {', '.join(DATASETS)}." in listed
