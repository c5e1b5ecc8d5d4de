"""docs/tools/convert_recordings.py, on small archives with the layout of the real ones."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from sleepconv.brain import read_dataset, read_folder

CONVERT = runpy.run_path(str(Path(__file__).parents[2] / "docs/tools/convert_recordings.py"))
RANDOM = np.random.default_rng(0)
PICTURES = RANDOM.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)


def converted(tmp_path: Path, name: str, **arrays: object) -> list[Path]:
    np.savez(tmp_path / f"{name}.npz", **arrays)
    return CONVERT["convert"](tmp_path, tmp_path / "out")


def test_raw_repeats_are_read_with_images_first(tmp_path):
    raw = RANDOM.random((3, 6, 10))
    arrays = {"responses": raw.mean(2).T, "responses_raw": raw, "image_names": list("abcdef")}
    (path,) = converted(tmp_path, "macaque_v4_210325", images=PICTURES, **arrays)
    (read,) = read_dataset(path)
    assert (read.name, read.region) == ("macaque_v4_210325", "V4")
    np.testing.assert_array_equal(read.responses[4, 1], raw[1, 4])


def test_movies_become_groups_over_all_scales_and_categories_and_missing_repeats_nan(tmp_path):
    index = np.array([[[[0], [1]], [[2], [1]]], [[[3], [4]], [[3], [5]]]])
    first, second = np.ones((6, 2, 3), np.int8), np.full((6, 1, 2), 5, np.int8)
    first[0, 0, 2] = -1
    arrays = {"index_scale_cat_movie_frame": index, "counts_a": first, "counts_b": second}
    (path,) = converted(tmp_path, "macaque_v1_movies", images=PICTURES[..., 0], **arrays)
    (read,) = read_dataset(path)
    assert read.groups.tolist() == [0, 1, 0, 0, 1, 1]
    assert read.responses.shape == (6, 3, 3)
    assert np.isnan(read.responses[0, 0, 2])
    assert np.isnan(read.responses[:, 2, 2]).all()
    np.testing.assert_array_equal(read.mean_responses()[0], [1, 1, 5])


def test_an_image_of_two_movies_or_of_none_is_an_error():
    with pytest.raises(ValueError, match="an image of movie 1 also belongs to another movie"):
        CONVERT["movie_of_each_image"](np.array([[[[0], [0]]]]), 1)
    with pytest.raises(ValueError, match="2 images belong to no movie"):
        CONVERT["movie_of_each_image"](np.array([[[[0], [-1]]]]), 3)


def test_sessions_of_one_person_are_one_subject(tmp_path):
    on_a_line = np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))

    def rdm(*shape: int) -> np.ndarray:
        return np.broadcast_to(on_a_line, (*shape, 9, 9)).astype(np.float32)

    arrays = {
        "monkey_IT_rdm": rdm(),
        "human_IT_session_rdms": rdm(4),
        "cichy_IT_rdms": rdm(5),
        "cichy_EVC_rdms": rdm(5),
    }
    names = [f"hIT | {who} | Session: {n}" for who in ("AB", "CD") for n in (1, 2)]
    pictures = RANDOM.integers(0, 256, (9, 8, 8), dtype=np.uint8)
    converted(tmp_path, "it_rdm_92", images=pictures, human_IT_session_names=names, **arrays)
    subjects = {data.name: len(data.rdms) for data in read_folder(tmp_path / "out")}
    assert subjects == {
        "macaque-92": 1,
        "human-92": 2,
        "human-92-second-study": 5,
        "human-92-second-study-early": 5,
    }


def test_a_folder_without_archives_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has none of cifar10h_counts.npz, it_rdm_92.npz"):
        CONVERT["convert"](tmp_path, tmp_path / "out")
