"""Representational similarity: whether a layer and a region find the same images alike, and the subjects' ceiling."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata, spearmanr

_Pairs = Float[np.ndarray, "pairs"]


def similarity(
    model: Float[np.ndarray, "images images"], subjects: Float[np.ndarray, "subjects images images"]
) -> float:
    """Average Spearman's ρ between the model's and each subject's dissimilarities.

    >>> rdm = dissimilarity(np.random.default_rng(0).normal(size=(6, 9)))
    >>> round(similarity(rdm, rdm[None]), 3)
    1.0
    """
    return _mean_rank_correlation(_pairs(model), [_pairs(subject) for subject in subjects])


def dissimilarity(features: Float[np.ndarray, "images features"]) -> Float[np.ndarray, "images images"]:
    """Compute 1 − Pearson's r between the features of every two images.

    >>> dissimilarity(np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).round(3)
    array([[0., 2.],
           [2., 0.]])
    """
    rows = np.asarray(features, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise ValueError("`features` contains NaN or infinity; the network's activations overflow")
    distances = pdist(rows, "correlation")
    # The correlation with a constant row is undefined: take that image to be like no other.
    return squareform(np.nan_to_num(distances, nan=1.0))


@dataclass(frozen=True)
class NoiseCeiling:
    """Bounds on what the best model could reach, given how well subjects agree (Nili et al., 2014)."""

    lower: float
    upper: float


def noise_ceiling(subjects: Float[np.ndarray, "subjects images images"]) -> NoiseCeiling | None:
    """Compare each subject with the mean ranks of the others (lower bound) and of all (upper bound).

    Returns None for a single subject, whose noise cannot be told from its signal.

    >>> rdm = dissimilarity(np.random.default_rng(0).normal(size=(6, 9)))
    >>> noise_ceiling(np.stack([rdm, rdm])).upper > 0.999
    True
    """
    if len(subjects) < 2:
        return None
    ranks = np.stack([rankdata(_pairs(subject)) for subject in subjects])
    lower = [_rank_correlation(np.delete(ranks, i, axis=0).mean(axis=0), ranks[i]) for i in range(len(ranks))]
    return NoiseCeiling(float(np.mean(lower)), _mean_rank_correlation(ranks.mean(axis=0), list(ranks)))


def _pairs(rdm: np.ndarray) -> _Pairs:
    return rdm[np.triu_indices(len(rdm), k=1)]


def _mean_rank_correlation(model: _Pairs, subjects: list[_Pairs]) -> float:
    return float(np.mean([_rank_correlation(model, subject) for subject in subjects]))


def _rank_correlation(first: _Pairs, second: _Pairs) -> float:
    if first.max() == first.min() or second.max() == second.min():
        return 0.0
    return float(spearmanr(first, second).statistic)
