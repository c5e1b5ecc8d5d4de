"""Representational similarity: which images a layer and a region take to be alike, with a ceiling from subjects."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata, spearmanr

Pairs = Float[np.ndarray, "pairs"]


def dissimilarity(features: Float[np.ndarray, "images features"]) -> Float[np.ndarray, "images images"]:
    """1 − Pearson's r between the answers to every two images.

    >>> dissimilarity(np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).round(3)
    array([[0., 2.],
           [2., 0.]])
    """
    rows = np.asarray(features, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise ValueError("the features are not finite; the network's answers overflow")
    distances = pdist(rows, "correlation")
    # An image that leaves a layer without any pattern has no correlation; it is then like no other.
    return squareform(np.nan_to_num(distances, nan=1.0))


@dataclass(frozen=True)
class NoiseCeiling:
    """What the best model could reach, from how well subjects agree (Nili et al., 2014)."""

    lower: float
    upper: float


def similarity(
    model: Float[np.ndarray, "images images"], subjects: Float[np.ndarray, "subjects images images"]
) -> float:
    """Spearman's ρ between the model's and each subject's dissimilarities, averaged over subjects.

    >>> rdm = dissimilarity(np.random.default_rng(0).normal(size=(6, 9)))
    >>> round(similarity(rdm, rdm[None]), 3)
    1.0
    """
    return _mean_rank_correlation(_pairs(model), [_pairs(subject) for subject in subjects])


def noise_ceiling(subjects: Float[np.ndarray, "subjects images images"]) -> NoiseCeiling | None:
    """Each subject against the mean ranks of the others (lower bound) and of all (upper bound).

    None for a single subject, whose noise cannot be told from its signal.

    >>> rdm = dissimilarity(np.random.default_rng(0).normal(size=(6, 9)))
    >>> noise_ceiling(np.stack([rdm, rdm])).upper > 0.999
    True
    """
    if len(subjects) < 2:
        return None
    ranks = np.stack([rankdata(_pairs(subject)) for subject in subjects])
    lower = [_rank_correlation(np.delete(ranks, i, axis=0).mean(axis=0), ranks[i]) for i in range(len(ranks))]
    return NoiseCeiling(float(np.mean(lower)), _mean_rank_correlation(ranks.mean(axis=0), list(ranks)))


def _pairs(rdm: np.ndarray) -> Pairs:
    return rdm[np.triu_indices(len(rdm), k=1)]


def _mean_rank_correlation(model: Pairs, subjects: list[Pairs]) -> float:
    return float(np.mean([_rank_correlation(model, subject) for subject in subjects]))


def _rank_correlation(first: Pairs, second: Pairs) -> float:
    if first.max() == first.min() or second.max() == second.min():
        return 0.0
    return float(spearmanr(first, second).statistic)
