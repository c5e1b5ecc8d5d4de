"""Against real recordings, where SLEEPCONV_BRAIN_DATA names a folder that holds them."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from sleepconv.brain import predictivity, principal_axes, read_dataset
from sleepconv.brain.recordings import Recording
from sleepconv.experiments.brain.candidates import OrientedEnergy

FOLDER = Path(os.environ.get("SLEEPCONV_BRAIN_DATA", "not given"))


def recording(name: str) -> Recording:
    if not (FOLDER / name).is_file():
        pytest.skip(f"no {name}: SLEEPCONV_BRAIN_DATA names no folder that holds it")
    return read_dataset(FOLDER / name)[0]


@pytest.fixture(scope="module")
def v4() -> Recording:
    return recording("macaque_v4_201025.npz")


@pytest.fixture(scope="module")
def low_level(v4) -> np.ndarray:
    images = torch.from_numpy(v4.images).permute(0, 3, 1, 2).float()
    return principal_axes(OrientedEnergy()(images).numpy())


def test_ridge_on_oriented_energy_predicts_v4_neurons(v4, low_level):
    assert 0.3 < predictivity(low_level, v4.mean_responses(), regression="ridge", folds=5).r < 0.5


def test_shuffled_v4_responses_are_not_predicted(v4, low_level):
    shuffled = v4.mean_responses()[np.random.default_rng(0).permutation(len(v4.images))]
    assert abs(predictivity(low_level, shuffled, regression="ridge", folds=5).r) < 0.05


def test_v1_has_ten_movies_and_its_360_units_respond_to_all_frames():
    v1 = recording("macaque_v1_movies.npz")
    assert len(np.unique(v1.groups)) == 10
    assert not np.isnan(v1.mean_responses()).any()
    assert v1.responses.shape[:2] == (440, 360)
