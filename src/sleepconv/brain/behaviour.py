"""Agreement of a network's errors and doubts with the labels that many people gave to the same images."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import log_softmax
from scipy.stats import rankdata

from sleepconv.brain.predictivity import correlations

_Counts = Int[np.ndarray, "images classes"]
_Logits = Float[np.ndarray, "images classes"]


@dataclass(frozen=True)
class Agreement:
    """How much a network agrees with people on some images, and how much people agree with each other.

    Attributes:
        cross_entropy: of the network's probabilities under the people's label distribution, in nats; lower is better.
        people_cross_entropy: the least possible, the entropy of that distribution.
        rank_correlation: Spearman's ρ between probabilities and counts over an image's classes, averaged over images.
        people_rank_correlation: the same between one half of an image's labels and the other.
        kappa: error consistency with single people.
        people_kappa: error consistency between two people.

    >>> Agreement(1.2, 0.2, 0.5, 0.9, kappa=0.1, people_kappa=0.4).score
    0.25
    """

    cross_entropy: float
    people_cross_entropy: float
    rank_correlation: float
    people_rank_correlation: float
    kappa: float
    people_kappa: float

    @property
    def score(self) -> float:
        """Error consistency divided by that between two people."""
        return self.kappa / self.people_kappa


def agreement(logits: _Logits, counts: _Counts, labels: Int[np.ndarray, "images"], *, seed: int = 0) -> Agreement:
    """Compare a network with people on the same images.

    Args:
        logits: the network's outputs.
        counts: how many people gave each label.
        labels: the true classes.
        seed: of the two halves of people.

    >>> counts = np.array([[9, 1], [2, 8], [5, 5], [1, 9]])
    >>> round(agreement(np.log(counts), counts, np.array([0, 1, 0, 1])).rank_correlation, 2)
    0.75
    """
    if not len(logits) == len(counts) == len(labels) or logits.shape != counts.shape:
        raise ValueError(
            f"`logits` and `counts` must have the same shape and a row for each of {len(labels)} labels, "
            f"got {logits.shape} and {counts.shape}"
        )
    shares = counts / counts.sum(axis=1, keepdims=True)
    people = counts[np.arange(len(labels)), labels]
    return Agreement(
        cross_entropy=_cross_entropy(logits, shares),
        people_cross_entropy=_cross_entropy(np.log(np.maximum(shares, 1e-12)), shares),
        rank_correlation=rank_correlation(logits, counts),
        people_rank_correlation=rank_correlation(*_half_counts(counts, seed)),
        kappa=error_consistency(logits.argmax(axis=1) == labels, people / counts.sum(axis=1)),
        people_kappa=people_consistency(people, counts.sum(axis=1)),
    )


def _cross_entropy(logits: _Logits, shares: Float[np.ndarray, "images classes"]) -> float:
    r"""Compute the soft-label cross-entropy in nats.

    .. math:: -\sum_c p_c \log q_c

    averaged over images, p being the people's label shares and q the network's probabilities.

    >>> round(_cross_entropy(np.zeros((1, 2)), np.array([[0.5, 0.5]])), 3)
    0.693
    """
    return float(-(shares * log_softmax(logits, axis=1)).sum(axis=1).mean())


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Average Spearman's ρ between two rows of classes over images; a constant row counts as 0.

    >>> round(rank_correlation(np.array([[1, 2, 3]]), np.array([[10, 20, 30]])), 6)
    1.0
    """
    ranks = (rankdata(rows, axis=1).T for rows in (first, second))
    return float(np.nan_to_num(correlations(*ranks)).mean())


def error_consistency(right: Bool[np.ndarray, "images"], people: Float[np.ndarray, "images"]) -> float:
    r"""Compute Cohen's κ between the errors of a network and of a person drawn at random for each image.

    .. math:: \kappa = (c_{obs} - c_{exp}) / (1 - c_{exp})

    Geirhos et al. (2020). The observed agreement is its expectation over the people who saw an image, a fraction
    ``people`` of whom were right.

    >>> error_consistency(np.array([True, False]), np.array([1.0, 0.0]))
    1.0
    """
    observed = np.where(right, people, 1 - people).mean()
    return _kappa(float(observed), float(right.mean()), float(people.mean()))


def people_consistency(right: Int[np.ndarray, "images"], answers: Int[np.ndarray, "images"]) -> float:
    """Compute κ between two people drawn at random for each image, of whose ``answers`` ``right`` are right.

    >>> people_consistency(np.array([10, 0]), np.array([10, 10]))
    1.0
    """
    wrong = answers - right
    observed = (right * (right - 1) + wrong * (wrong - 1)) / (answers * (answers - 1))
    share = float((right / answers).mean())
    return _kappa(float(observed.mean()), share, share)


def _kappa(observed: float, first: float, second: float) -> float:
    expected = first * second + (1 - first) * (1 - second)
    if expected >= 1:
        raise ValueError("neither side makes any errors on these images, so error consistency is undefined")
    return (observed - expected) / (1 - expected)


def _half_counts(counts: _Counts, seed: int) -> tuple[_Counts, _Counts]:
    random = np.random.default_rng(seed)
    first = np.stack([random.multivariate_hypergeometric(row, int(row.sum()) // 2) for row in counts])
    return first, counts - first
