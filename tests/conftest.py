"""Small files in the official formats, written for the tests; and what is set before torch is used."""

import gzip
import io
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Some virtual machines advertise AMX and trap on it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# Triton's interpreter runs the GPU kernels on CPU tensors; Triton reads this when it is imported.
os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np
import pytest
import torch
from filelock import FileLock
from PIL import Image

from sleepconv.experiments.paper import recipe
from sleepconv.experiments.runs import RunFolder, run_path

# One worker runs all of such a file, and begins with it: its runs are made once, or its networks kept.
WHOLE_FILES = [
    "tests/docs/test_site.py",
    "tests/kernels/test_triton.py",
    "tests/explore/test_page.py",
    "tests/experiments/paper/test_every_recipe_learns.py",
    "tests/experiments/report/test_report.py",
    "tests/sleep/test_distributed.py",
    "tests/experiments/test_demo.py",
    "tests/test_examples.py",
    "tests/experiments/training/test_kill.py",
    "tests/experiments/training/test_parallel.py",
]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once for all workers as ``make docs`` builds it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    out = shared / "site"
    with FileLock(shared / "site.lock"):
        if not out.exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
            done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share the tests among workers; xdist's own ``loadgroup`` does not group under pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFileOrTest(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if file in WHOLE_FILES else nodeid

    return ByFileOrTest(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep", action="store_true", help="try every case of tests/nn/test_neighbours.py, and of the GPU kernels"
    )


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """Ctrl-C is heard, here and in processes started here, also where it was ignored (``nohup make test &``)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def limit_files() -> Iterator[Callable[[int], None]]:
    """Call it with the bytes that a file of this process can have, as on a disk without room for more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda most: resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def cifar_records(count: int, label_bytes: int, classes: int, seed: int) -> bytes:
    random = np.random.default_rng(seed)
    records = random.integers(0, 256, (count, label_bytes + 3072), dtype=np.uint8)
    records[:, label_bytes - 1] = np.arange(count) % classes
    return records.tobytes()


@pytest.fixture
def small_cifar10(data_dir: Path) -> Path:
    """Six files of 20 records each."""
    folder = data_dir / "cifar-10-batches-bin"
    folder.mkdir()
    for i in range(1, 6):
        (folder / f"data_batch_{i}.bin").write_bytes(cifar_records(20, 1, 10, seed=i))
    (folder / "test_batch.bin").write_bytes(cifar_records(20, 1, 10, seed=0))
    (folder / "batches.meta.txt").write_text("\n".join(f"class {i}" for i in range(10)) + "\n\n")
    return folder


@pytest.fixture
def small_cifar100(data_dir: Path) -> Path:
    folder = data_dir / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(cifar_records(200, 2, 100, seed=1))
    (folder / "test.bin").write_bytes(cifar_records(100, 2, 100, seed=2))
    (folder / "fine_label_names.txt").write_text("\n".join(f"fine {i}" for i in range(100)) + "\n")
    (folder / "coarse_label_names.txt").write_text("\n".join(f"coarse {i}" for i in range(20)) + "\n")
    return folder


def idx(values: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    return header + values.astype(np.uint8).tobytes()


@pytest.fixture
def small_fashion(data_dir: Path) -> Path:
    folder = data_dir / "fashion-mnist"
    folder.mkdir()
    random = np.random.default_rng(0)
    for part, count in (("train", 50), ("t10k", 20)):
        images = random.integers(0, 256, (count, 28, 28))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.arange(count) % 10)))
    return folder


def jpeg(height: int, width: int, seed: int = 0, mode: str = "RGB") -> bytes:
    """A smooth random picture, so that compression changes it little."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    picture = small.resize((width, height), Image.Resampling.BICUBIC).convert(mode)
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=95)
    return content.getvalue()


@pytest.fixture
def make_jpeg() -> Callable[..., bytes]:
    return jpeg


@pytest.fixture
def small_tiny_imagenet(data_dir: Path) -> Path:
    """Three classes of ten training images; six validation images in no order, one of them grey."""
    folder = data_dir / "tiny-imagenet-200"
    wnids = ["n03", "n01", "n02"]
    for number, wnid in enumerate(wnids):
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        for i in range(10):
            (images / f"{wnid}_{i}.JPEG").write_bytes(jpeg(64, 64, seed=10 * number + i))
    (folder / "val" / "images").mkdir(parents=True)
    lines = []
    for i, wnid in enumerate(["n02", "n01", "n03", "n03", "n01", "n02"]):
        content = jpeg(64, 64, seed=100 + i, mode="L" if i == 3 else "RGB")
        (folder / "val" / "images" / f"val_{i}.JPEG").write_bytes(content)
        lines.append(f"val_{i}.JPEG\t{wnid}\t0\t0\t63\t63")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    (folder / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tfrog\nn03\tacorn\n")
    return folder


@pytest.fixture
def small_imagenet(data_dir: Path) -> Path:
    """Two classes; twelve training and six validation images of various sizes."""
    folder = data_dir / "imagenet"
    sizes = [(300, 400), (400, 300), (256, 256), (120, 200), (280, 500), (600, 512)]
    for part, count in (("train", 6), ("val", 3)):
        for wnid in ("n01", "n02"):
            images = folder / part / wnid
            images.mkdir(parents=True)
            for i in range(count):
                (images / f"{wnid}_{i}.JPEG").write_bytes(jpeg(*sizes[i], seed=i))
    return folder


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Path]:
    """Write the record of a finished run of a recipe, as training leaves it, into ``runs``."""

    def write(name: str, *, top1: float, top5: float = 99.0, runs: str = "runs", **changes: Any) -> Path:
        run = changes.pop("run", None) or recipe(name, **changes)
        folder = RunFolder(run_path(tmp_path / runs, run))
        folder.path.mkdir(parents=True)
        folder.claim(run)
        environment = {"processor": "abacus", "cores": 1, "device": "cpu"}
        summary = {"top1": top1, "top5": top5, "seconds": 60.0, "seconds_per_epoch": 3.0, "scale": run.scale}
        folder.write_json("environment.json", environment)
        folder.write_json("summary.json", summary | {"set": "validation" if run.tuning else "test"})
        return folder.path

    return write
