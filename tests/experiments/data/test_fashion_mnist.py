import gzip

import pytest

from sleepconv.experiments.data import fashion_mnist
from sleepconv.experiments.data.fashion_mnist import read_idx


def test_idx_files_become_images_and_labels(small_fashion, data_dir):
    images = fashion_mnist(data_dir, complete=False)
    assert images.pixels.shape == (50, 1, 28, 28)
    assert images.labels.tolist() == [i % 10 for i in range(50)]
    assert images.classes[9] == "Ankle boot"


def test_unpacked_files_are_read_too(small_fashion, data_dir):
    before = fashion_mnist(data_dir, complete=False)
    for path in small_fashion.iterdir():
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert (fashion_mnist(data_dir, complete=False).pixels == before.pixels).all()


def test_fewer_images_than_official_are_refused(small_fashion, data_dir):
    with pytest.raises(ValueError, match="has 50 train labels"):
        fashion_mnist(data_dir)


@pytest.mark.parametrize("keep", [-1, -40, 30])
def test_a_truncated_gzip_file_is_named(small_fashion, data_dir, keep):
    path = small_fashion / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz is truncated or damaged"):
        fashion_mnist(data_dir, complete=False)


def test_a_file_that_is_not_an_idx_file_is_named(tmp_path):
    (tmp_path / "a").write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match="is not an idx file of bytes with 3 axes"):
        read_idx(tmp_path / "a", axes=3)


def test_values_that_do_not_match_the_header_are_refused(tmp_path):
    (tmp_path / "a").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 5, 1, 2, 3]))
    with pytest.raises(ValueError, match=r"has 3 values, but its header \(5,\) promises 5"):
        read_idx(tmp_path / "a", axes=1)


def test_a_label_out_of_range_is_named(small_fashion, data_dir):
    path = small_fashion / "t10k-labels-idx1-ubyte.gz"
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[8 + 4] = 77
    path.write_bytes(gzip.compress(content))
    with pytest.raises(ValueError, match=r"record 4 of .*t10k-labels.* has label 77"):
        fashion_mnist(data_dir, train=False, complete=False)
