"""Fashion-MNIST from its idx files, plain or gzipped."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch

from sleepconv.experiments.data.description import (
    INCOMPLETE,
    Dataset,
    Download,
    File,
    StrPath,
    data_directory,
    find_file,
    require_file,
)
from sleepconv.experiments.data.images import Images, check_labels

_SITE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_DEBIAN = Path("/usr/share/datasets/fashion-mnist")
_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def fashion_mnist(data_dir: StrPath | None = None, *, train: bool = True, complete: bool = True) -> Images:
    """Read Fashion-MNIST: 60,000 training or 10,000 test images, uint8, 1×28×28, ten classes.

    ``complete=False`` accepts files with fewer images than the official ones.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "fashion-mnist"
    >>> folder.mkdir()
    >>> image, label = np.full((1, 28, 28), 7, np.uint8), np.full(1, 3, np.uint8)
    >>> for kind, values in {"images-idx3": image, "labels-idx1": label}.items():
    ...     head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">i4").tobytes()
    ...     _ = (folder / f"train-{kind}-ubyte").write_bytes(head + values.tobytes())
    >>> fashion_mnist(folder.parent, complete=False).pixels.shape
    torch.Size([1, 1, 28, 28])
    """
    folder = FASHION_MNIST.directory(data_directory(data_dir))
    part = "train" if train else "t10k"
    pixels = read_idx(_find(folder / f"{part}-images-idx3-ubyte"), axes=3)
    path = _find(folder / f"{part}-labels-idx1-ubyte")
    labels = torch.from_numpy(read_idx(path, axes=1).astype(np.int64))
    official = FASHION_MNIST.train_images if train else FASHION_MNIST.test_images
    expected = official if complete else len(labels)
    if pixels.shape != (expected, 28, 28) or len(labels) != expected:
        raise ValueError(
            f"{folder} has {len(labels)} {part} labels and images of shape {pixels.shape}, expected "
            f"{expected} and ({expected}, 28, 28); run `sleepconv data check fashion-mnist`"
            + (f", or {INCOMPLETE}" if complete else "")
        )
    check_labels(labels, len(_CLASSES), path)
    return Images(torch.from_numpy(pixels)[:, None], labels, _CLASSES)


FASHION_MNIST = Dataset(
    name="fashion-mnist",
    title="Fashion-MNIST",
    read=fashion_mnist,
    train_images=60_000,
    test_images=10_000,
    held_out=6_000,
    folder="fashion-mnist",
    system_folder=_DEBIAN,
    unpack=False,
    downloads=tuple(
        Download(name, _SITE + name, md5)
        for name, md5 in (
            ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
            ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
            ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
        )
    ),
    # Checksums of the uncompressed files: distributions compress them differently.
    files=(
        File("train-images-idx3-ubyte", 47_040_016, "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
        File("train-labels-idx1-ubyte", 60_008, "9018921c3c673c538a1fc5bad174d6f9"),
        File("t10k-images-idx3-ubyte", 7_840_016, "8181f5470baa50b63fa0f6fddb340f0a"),
        File("t10k-labels-idx1-ubyte", 10_008, "15d484375f8d13e6eb1aabb0c3f46965"),
    ),
    advice=f"or, on Debian and Ubuntu: apt install dataset-fashion-mnist (read from {_DEBIAN})",
)


def _find(path: Path) -> Path:
    return find_file(path) or require_file(path, FASHION_MNIST.name)


def read_content(path: Path) -> bytes:
    """Return the content of a file, uncompressed if its name ends in .gz."""
    raw = path.read_bytes()
    if path.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is truncated or damaged ({error}); remove it and download it again") from error


def read_idx(path: Path, *, axes: int) -> np.ndarray:
    """Read an idx file of bytes: a header 0, 0, 8, axes; the length of each axis, big-endian; then the values."""
    content = read_content(path)
    start = 4 + 4 * axes
    if len(content) < start or content[:4] != bytes([0, 0, 8, axes]):
        raise ValueError(f"{path} is not an idx file of bytes with {axes} axes: it begins with {content[:4].hex(' ')}")
    shape = tuple(np.frombuffer(content, ">u4", axes, offset=4).tolist())
    values = int(np.prod(shape))
    if len(content) != start + values:
        raise ValueError(
            f"{path} has {len(content) - start:,} values, but its header {shape} promises {values:,}; "
            "it is truncated or damaged: remove it and download it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()
