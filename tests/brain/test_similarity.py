import numpy as np
import pytest
from scipy.stats import spearmanr

from sleepconv.brain.fits import Settings, fit_dissimilarities
from sleepconv.brain.recordings import Dissimilarities
from sleepconv.brain.similarity import dissimilarity, noise_ceiling, similarity

LAYERS = {name: np.random.default_rng(seed).normal(size=(40, 30)) for seed, name in enumerate(["wrong", "right"])}
PICTURES = np.zeros((40, 4, 4), np.uint8)


def subjects(noise: float, count: int = 5) -> np.ndarray:
    random = np.random.default_rng(9)
    return np.stack([dissimilarity(LAYERS["right"] + noise * random.normal(size=(40, 30))) for _ in range(count)])


def test_dissimilarity_is_one_minus_the_correlation_of_two_rows():
    rows = LAYERS["right"]
    np.testing.assert_allclose(dissimilarity(rows), 1 - np.corrcoef(rows), atol=1e-12)


def test_similarity_is_the_mean_rank_correlation_over_pairs_of_images():
    people, upper = subjects(1.0), np.triu_indices(40, k=1)
    model = dissimilarity(LAYERS["wrong"])
    expected = np.mean([spearmanr(model[upper], person[upper]).statistic for person in people])
    assert similarity(model, people) == pytest.approx(expected)


def test_the_true_layer_lies_between_the_bounds_of_the_noise_ceiling_and_others_below():
    people = subjects(0.7, count=12)
    bounds = noise_ceiling(people)
    assert bounds.lower < similarity(dissimilarity(LAYERS["right"]), people) <= bounds.upper
    assert similarity(dissimilarity(LAYERS["wrong"]), people) < bounds.lower - 0.2


def test_one_subject_has_no_ceiling():
    assert noise_ceiling(subjects(0.5, count=1)) is None


def test_the_right_layer_is_chosen_on_one_half_and_scores_near_one_on_the_other():
    entry = fit_dissimilarities(Dissimilarities("toy", "IT", PICTURES, subjects(0.5)), LAYERS, Settings())
    assert entry["layer"] == "right"
    assert entry["score"] == pytest.approx(1, abs=0.1)
    assert entry["layers"]["wrong"]["score"] < 0.3


def test_without_subjects_to_compare_there_is_r_but_no_score():
    entry = fit_dissimilarities(Dissimilarities("toy", "IT", PICTURES, subjects(0.5, 1)), LAYERS, Settings())
    assert entry["score"] is None
    assert entry["r"] > 0.5


def test_a_layer_that_answers_the_same_to_all_images_is_similar_to_nothing():
    assert similarity(dissimilarity(np.ones((40, 3))), subjects(0.5)) == 0


def test_a_network_that_overflows_is_not_scored():
    with pytest.raises(ValueError, match="NaN or infinity"):
        dissimilarity(np.full((9, 5), np.nan))


def test_subjects_that_do_not_agree_are_an_error():
    random = np.random.default_rng(0)
    one = dissimilarity(random.normal(size=(40, 9)))
    with pytest.raises(ValueError, match="do not agree"):
        fit_dissimilarities(Dissimilarities("toy", "IT", PICTURES, np.stack([one, 2 - one])), LAYERS, Settings())
