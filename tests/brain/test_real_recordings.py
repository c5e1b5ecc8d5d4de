"""Real recordings, converted first, where SLEEPCONV_BRAIN_DATA names the folder of the original archives."""

import json
import math
import os
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, conv2d

from sleepconv.brain import Recording, predictivity, principal_axes, read_dataset
from sleepconv.brain.activations import digest_of

ROOT = Path(__file__).parents[2]
ARCHIVES = Path(os.environ.get("SLEEPCONV_BRAIN_DATA", "not given"))
REACH = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The recordings in the format that the package reads."""
    if not ARCHIVES.is_dir():
        pytest.skip("SLEEPCONV_BRAIN_DATA names no folder")
    folder = tmp_path_factory.mktemp("recordings")
    runpy.run_path(str(ROOT / "docs/tools/convert_recordings.py"))["convert"](ARCHIVES, folder)
    return folder


def recording(folder: Path, name: str) -> Recording:
    if not (folder / name).is_file():
        pytest.skip(f"SLEEPCONV_BRAIN_DATA has no {name}")
    (read,) = read_dataset(folder / name)
    assert isinstance(read, Recording)
    return read


@pytest.fixture(scope="module")
def v4(folder) -> Recording:
    return recording(folder, "macaque_v4_201025.npz")


def oriented_energy(images: Tensor, cells: int = 8) -> Tensor:
    """Energy of Gabor filters (four orientations, two scales) on luminance, averaged in cells × cells."""
    filters = torch.cat([quadrature_pair(math.pi * i / 4, width) for width in (1.5, 3.0) for i in range(4)])[:, None]
    responses = conv2d(images.mean(dim=1, keepdim=True), filters, padding=REACH)
    energy = responses.unflatten(1, (-1, 2)).square().sum(dim=2).sqrt()
    return adaptive_avg_pool2d(energy, cells).flatten(1)


def quadrature_pair(angle: float, width: float) -> Tensor:
    """An even and an odd Gabor filter with mean 0 and norm 1."""
    axis = torch.arange(-REACH, REACH + 1.0)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    phase = (columns * math.cos(angle) + rows * math.sin(angle)) * math.pi / (1.5 * width)
    window = torch.exp(-(rows**2 + columns**2) / (2 * width**2))
    pair = torch.stack([window * torch.cos(phase), window * torch.sin(phase)])
    pair -= pair.mean(dim=(1, 2), keepdim=True)
    return pair / pair.flatten(1).norm(dim=1)[:, None, None]


@pytest.fixture(scope="module")
def low_level(v4) -> np.ndarray:
    images = torch.from_numpy(v4.images).permute(0, 3, 1, 2).float()
    return principal_axes(oriented_energy(images).numpy())


def test_ridge_on_oriented_energy_predicts_v4_neurons(v4, low_level):
    assert 0.3 < predictivity(low_level, v4.mean_responses(), regression="ridge", folds=5).r < 0.5


def test_shuffled_v4_responses_are_not_predicted(v4, low_level):
    shuffled = v4.mean_responses()[np.random.default_rng(0).permutation(len(v4.images))]
    assert abs(predictivity(low_level, shuffled, regression="ridge", folds=5).r) < 0.05


def test_v1_has_ten_movies_and_its_360_units_respond_to_all_frames(folder):
    v1 = recording(folder, "macaque_v1_movies.npz")
    assert len(np.unique(v1.groups)) == 10
    assert not np.isnan(v1.mean_responses()).any()
    assert v1.responses.shape[:2] == (440, 360)


def test_the_converted_data_is_that_of_the_records(folder):
    recorded = json.loads((ROOT / "results/brain/pixels.json").read_text())["data"]
    for path in folder.glob("*.npz"):
        (dataset,) = read_dataset(path)
        if path.stem != "cifar10h_counts":  # its digest covers the CIFAR-10 test images too
            assert digest_of(*vars(dataset).values()) == recorded[dataset.name]
