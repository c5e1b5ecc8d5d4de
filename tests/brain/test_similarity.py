import numpy as np
import pytest
from scipy.stats import spearmanr

from sleepconv.brain.fits import Settings, fit_dissimilarities
from sleepconv.brain.recordings import Dissimilarities
from sleepconv.brain.similarity import cka, dissimilarity, noise_ceiling, similarity

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


def written_out_cka(x, y):
    x, y = x - x.mean(0), y - y.mean(0)
    return np.linalg.norm(y.T @ x) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))


def test_cka_is_its_equation_and_ignores_rotation_scale_and_offset():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(30, 8)), random.normal(size=(30, 50))
    assert cka(x, y) == pytest.approx(written_out_cka(x, y))
    rotation = np.linalg.qr(random.normal(size=(8, 8)))[0]
    assert cka(7 * x @ rotation + 3, y) == pytest.approx(cka(x, y))


def test_unrelated_features_have_a_debiased_cka_around_zero_and_a_plain_one_near_one():
    random = np.random.default_rng(0)
    pairs = [random.normal(size=(2, 20, 500)) for _ in range(100)]
    assert min(cka(x, y) for x, y in pairs) > 0.9
    assert abs(np.mean([cka(x, y, debiased=True) for x, y in pairs])) < 0.02
    x, _ = pairs[0]
    assert cka(x, 2 * x, debiased=True) == pytest.approx(1)


def test_cka_refuses_features_of_different_or_too_few_images_and_constant_ones_are_like_no_others():
    x = np.random.default_rng(0).normal(size=(5, 3))
    assert cka(x, np.ones((5, 2))) == 0
    with pytest.raises(ValueError, match="same images, got 5 and 4"):
        cka(x, x[:4])
    with pytest.raises(ValueError, match="at least 4 images, got 3"):
        cka(x[:3], x[:3], debiased=True)
    with pytest.raises(ValueError, match="NaN"):
        cka(x, np.full((5, 1), np.nan))
