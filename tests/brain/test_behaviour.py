import numpy as np
import pytest
from scipy.stats import entropy, spearmanr
from sklearn.metrics import cohen_kappa_score

from sleepconv.brain.behaviour import agreement, error_consistency, people_consistency, rank_correlation
from sleepconv.brain.fits import Settings, fit_behaviour
from sleepconv.brain.recordings import LabelCounts

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 4, 400)
SHARES = RANDOM.dirichlet(np.ones(4), 400) * 0.5 + 0.5 * np.eye(4)[LABELS]
COUNTS = np.stack([RANDOM.multinomial(50, share) for share in SHARES])


def test_the_least_cross_entropy_is_the_entropy_of_the_peoples_labels():
    shares = COUNTS / COUNTS.sum(axis=1, keepdims=True)
    result = agreement(np.log(shares + 1e-12), COUNTS, LABELS)
    assert result.cross_entropy == pytest.approx(entropy(shares, axis=1).mean(), abs=1e-6)
    assert result.people_cross_entropy == pytest.approx(result.cross_entropy, abs=1e-6)
    assert agreement(np.zeros((400, 4)), COUNTS, LABELS).cross_entropy == pytest.approx(np.log(4))


def test_rank_correlation_is_the_mean_of_scipys_over_images():
    logits = RANDOM.normal(size=(400, 4))
    expected = np.mean([spearmanr(a, b).statistic for a, b in zip(logits, COUNTS, strict=True)])
    assert rank_correlation(logits, COUNTS) == pytest.approx(expected)


def test_error_consistency_is_cohens_kappa_with_people_drawn_at_random():
    right = RANDOM.random(400) < 0.7
    people = COUNTS[np.arange(400), LABELS] / 50
    drawn = RANDOM.random((100, 400)) < people
    expected = np.mean([cohen_kappa_score(right, person) for person in drawn])
    assert error_consistency(right, people) == pytest.approx(expected, abs=0.02)


def test_consistency_of_people_is_cohens_kappa_between_two_of_them():
    right = COUNTS[np.arange(400), LABELS]
    answers = [np.arange(50) < count for count in right]
    kappas = []
    for _ in range(100):
        pair = np.array([RANDOM.choice(answer, 2, replace=False) for answer in answers])
        kappas.append(cohen_kappa_score(pair[:, 0], pair[:, 1]))
    assert people_consistency(right, np.full(400, 50)) == pytest.approx(np.mean(kappas), abs=0.02)


def test_a_network_that_ignores_the_image_has_no_error_consistency():
    assert agreement(np.tile([3.0, 2, 1, 0], (400, 1)), COUNTS, LABELS).kappa == pytest.approx(0, abs=0.05)


def test_a_person_is_as_consistent_with_people_as_two_people_are():
    people = COUNTS[np.arange(400), LABELS] / 50
    drawn = RANDOM.random((300, 400)) < people
    kappas = [error_consistency(person, people) for person in drawn]
    assert np.mean(kappas) == pytest.approx(people_consistency((50 * people).round(), np.full(400, 50)), abs=0.03)


def test_sides_without_errors_cannot_be_compared():
    with pytest.raises(ValueError, match="neither side makes any errors"):
        error_consistency(np.ones(3, bool), np.ones(3))


def test_logits_and_counts_of_different_shape_are_an_error():
    with pytest.raises(ValueError, match="must have the same shape and a row for each"):
        agreement(np.zeros((400, 3)), COUNTS, LABELS)


def test_small_whole_numbers_do_not_overflow():
    counts = np.array([[40, 10], [5, 45], [30, 20], [12, 38]])
    logits, labels = np.log(counts[::-1]), np.array([0, 1, 0, 1])
    small, large = (LabelCounts("mine", counts.astype(kind)).counts for kind in (np.uint8, np.int64))
    assert agreement(logits, small, labels) == agreement(logits, large, labels)


def test_people_who_do_not_agree_are_no_measure():
    data = LabelCounts("mine", np.ones((50, 10), int))
    with pytest.raises(ValueError, match="people agree in their errors no more than by chance"):
        fit_behaviour(data, RANDOM.random((50, 10)), np.arange(50) % 10, Settings())
