"""Fits against known answers: brains made of a layer and noise, and scikit-learn on the features themselves."""

import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.cross_decomposition import PLSRegression
from sklearn.linear_model import Ridge

from sleepconv.brain.fits import Settings, fit_recording
from sleepconv.brain.predictivity import (
    Predictivity,
    ceiling,
    halves,
    predictivity,
    principal_axes,
    reliability,
    splits,
    varying,
)
from sleepconv.brain.recordings import Recording

RANDOM = np.random.default_rng(0)
LAYER, OTHER = RANDOM.normal(size=(600, 40)), RANDOM.normal(size=(600, 40))
GROUPS = np.repeat(np.arange(12), 50)
PICTURES = np.zeros((600, 4, 4), np.uint8)


def brain(noise: float, repeats: int = 6) -> np.ndarray:
    """Eight neurons that are linear functions of LAYER with variance 1, and repeats with independent noise."""
    random = np.random.default_rng(1)
    weights = random.normal(size=(40, 8))
    signal = LAYER @ (weights / np.linalg.norm(weights, axis=0))
    return signal[:, :, None] + noise * random.normal(size=(600, 8, repeats))


def test_a_brain_made_of_a_layer_and_noise_is_explained_up_to_its_ceiling_by_that_layer_alone():
    entry = fit_recording(Recording("toy", "V4", PICTURES, brain(1.0)), {"other": OTHER, "right": LAYER}, Settings())
    assert entry["layer"] == "right"
    assert entry["score"] == pytest.approx(1, abs=0.1)
    assert entry["ceiling"] == pytest.approx(np.sqrt(6 / 7), abs=0.02)
    assert abs(entry["layers"]["other"]["r"]) < 0.1
    assert entry["ridge"]["score"] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("regression", ["pls", "ridge"])
def test_shuffled_responses_are_not_predicted(regression):
    responses = brain(0.5).mean(axis=2)[np.random.default_rng(2).permutation(600)]
    assert abs(predictivity(LAYER, responses, regression=regression).r) < 0.05


def test_partial_least_squares_is_that_of_scikit_learn_on_the_features_as_they_are():
    features = np.random.default_rng(3).normal(size=(80, 300)) * np.linspace(0.1, 2, 300)
    responses = features[:, :5] + np.random.default_rng(4).normal(size=(80, 5))
    ours = predictivity(principal_axes(features), responses, components=8, folds=4).correlations
    for row, (train, test) in zip(ours, splits(80, folds=4), strict=True):
        prediction = PLSRegression(8, scale=False).fit(features[train], responses[train]).predict(features[test])
        expected = [pearsonr(prediction[:, i], responses[test, i]).statistic for i in range(5)]
        np.testing.assert_allclose(row, expected, atol=1e-4)


def test_rotated_features_give_the_same_ridge_regression():
    features = np.random.default_rng(3).normal(size=(60, 200)).astype(np.float32)
    axes = principal_axes(features, block=64)
    target = features[:, 0]
    direct, rotated = (Ridge(2.0).fit(x[:50], target[:50]).predict(x[50:]) for x in (features, axes))
    np.testing.assert_allclose(rotated, direct, atol=1e-4)


def test_no_group_is_on_both_sides_of_any_split():
    for train, test in [*splits(600, groups=GROUPS), halves(600, groups=GROUPS)]:
        assert not set(GROUPS[train]) & set(GROUPS[test])
    tested = np.concatenate([test for _, test in splits(600, groups=GROUPS)])
    assert sorted(tested) == list(range(600))


def test_frames_that_repeat_within_a_group_are_not_learnt_by_heart_when_groups_are_respected():
    random = np.random.default_rng(5)
    features = random.normal(size=(12, 40))[GROUPS] + 0.01 * random.normal(size=(600, 40))
    responses = random.normal(size=(12, 8))[GROUPS] + 0.1 * random.normal(size=(600, 8))
    assert predictivity(features, responses).r > 0.9
    assert abs(predictivity(features, responses, groups=GROUPS).r) < 0.2


def test_the_score_is_the_squared_ratio_of_r_and_ceiling():
    fit = Predictivity(np.array([[0.1, 0.4, 0.6], [0.2, 0.6, 0.8]]), ceiling=0.8)
    assert fit.r == pytest.approx(0.5)
    assert fit.score == pytest.approx((0.5 / 0.8) ** 2)
    assert fit.score_error == pytest.approx(np.std([(0.4 / 0.8) ** 2, (0.6 / 0.8) ** 2], ddof=1))
    assert Predictivity(fit.correlations).score is None


def test_reliability_is_that_of_the_mean_of_all_repeats():
    for noise, repeats in [(1.0, 6), (2.0, 10)]:
        expected = 1 / (1 + noise**2 / repeats)
        assert np.median(reliability(brain(noise, repeats))) == pytest.approx(expected, abs=0.03)


def test_absent_repeats_change_the_reliability_as_fewer_repeats_do():
    sparse = brain(1.0, 8)
    absent = np.random.default_rng(6).random(sparse.shape).argsort(axis=2) < 4
    sparse[absent] = np.nan
    assert np.median(reliability(sparse)) == pytest.approx(np.median(reliability(brain(1.0, 4))), abs=0.03)


def test_images_with_a_single_repeat_do_not_count():
    repeats = brain(0.5, 4)
    repeats[:10, :, 1:] = np.nan
    repeats[:10, :, 0] = 1e6
    assert 0.85 < ceiling(repeats) <= 1


def test_repeats_that_do_not_agree_have_no_ceiling():
    with pytest.raises(ValueError, match="do not agree"):
        ceiling(np.sin(np.arange(40.0)).reshape(40, 1, 1) * np.array([1.0, -1.0]))


def test_neurons_that_never_vary_or_lack_an_image_are_left_out_and_counted():
    responses = brain(0.5).astype(np.float32)
    responses[:, 0] = 3.0
    responses[5, 1] = np.nan
    entry = fit_recording(Recording("toy", "V4", PICTURES, responses), {"right": LAYER}, Settings())
    assert (entry["neurons"], entry["neurons_left_out"]) == (6, 2)
    assert entry["score"] == pytest.approx(1, abs=0.1)
    assert varying(Recording("toy", "V4", PICTURES, responses).mean_responses()).sum() == 6


def test_a_recording_without_a_neuron_to_fit_is_an_error():
    with pytest.raises(ValueError, match="no neuron has a response to every image"):
        fit_recording(Recording("toy", "V4", PICTURES, np.ones((600, 2))), {"right": LAYER}, Settings())


def test_a_neuron_silent_in_a_test_split_does_not_count_there():
    responses = brain(0.1).mean(axis=2)
    responses[:, 0] = 0
    responses[np.arange(600) == 3, 0] = 1
    fit = predictivity(LAYER, responses)
    assert np.isnan(fit.correlations[:, 0]).sum() == 9
    assert fit.r > 0.9


def test_too_few_images_for_the_components_is_an_error_that_says_so():
    with pytest.raises(ValueError, match="18 training images are too few for 25 components"):
        predictivity(LAYER[:20], brain(1.0).mean(axis=2)[:20])


def test_one_image_is_too_few():
    with pytest.raises(ValueError, match="at least 2 images, got 1"):
        halves(1)


def test_features_that_never_vary_predict_nothing():
    axes = principal_axes(np.ones((600, 7)))
    assert axes.shape == (600, 0)
    for regression in ("pls", "ridge"):
        assert predictivity(axes, brain(1.0).mean(axis=2), regression=regression).r == 0


def test_features_that_overflow_are_an_error():
    with pytest.raises(ValueError, match="NaN or infinity"):
        principal_axes(np.full((5, 7), np.nan))


def test_training_images_that_span_less_than_the_components_predict_as_well_as_ridge():
    random = np.random.default_rng(0)
    stimuli, shown = random.normal(size=(40, 3)), np.repeat(np.arange(40), 6)
    layer = stimuli @ random.normal(size=(3, 500)) + 0.2 * random.normal(size=(40, 500))
    responses = (stimuli @ random.normal(size=(3, 8)))[shown, :, None] + 0.3 * random.normal(size=(240, 8, 5))
    recording = Recording("toy", "V4", PICTURES[:240], responses, groups=shown)
    entry = fit_recording(recording, {"right": layer[shown]}, Settings())
    assert entry["r"] == pytest.approx(entry["ridge"]["r"], abs=0.05)
    assert entry["r"] > 0.9


def test_predictions_that_go_the_wrong_way_explain_nothing():
    fit = Predictivity(np.array([[-0.5, -0.3], [-0.1, -0.2]]), ceiling=0.8)
    assert fit.r < 0
    assert (fit.score, fit.score_error) == (0, 0)


def test_halves_of_groups_are_equal_in_images_and_need_four_groups():
    groups = np.repeat(np.arange(11), [100, *[10] * 10])
    first, second = halves(200, groups=groups)
    assert (len(first), len(second)) == (100, 100)
    assert not set(groups[first]) & set(groups[second])
    with pytest.raises(ValueError, match="at least 4 groups of images, got 3"):
        halves(30, groups=np.arange(30) % 3)


def test_a_split_with_one_test_image_does_not_count():
    groups = np.concatenate([np.arange(599) % 4, [4]])
    fit = predictivity(LAYER, brain(0.1).mean(axis=2), groups=groups)
    assert np.isnan(fit.r_of_splits).sum() == 1
    assert fit.r > 0.9


def test_a_neuron_without_repeats_does_not_count_for_the_ceiling():
    repeats = brain(0.5, 4)
    expected = ceiling(repeats[:, 1:])
    repeats[:, 0, 1:] = np.nan
    assert ceiling(repeats) == pytest.approx(expected, abs=0.02)
    repeats[:, :, 1:] = np.nan
    assert not Recording("toy", "V4", PICTURES, repeats).has_repeats
    with pytest.raises(ValueError, match="at least two repeats of two images"):
        ceiling(repeats)


def test_responses_without_repeats_have_no_ceiling_and_the_error_says_so():
    with pytest.raises(ValueError, match=r"must be images × neurons × repeats, got shape \(8, 2\)"):
        ceiling(np.zeros((8, 2)))
