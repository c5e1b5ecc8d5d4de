"""Representational similarity: whether two layers, or a layer and a region, find the same images alike.

``similarity`` compares ranks of dissimilarities (RSA), with ``noise_ceiling`` for the subjects; ``cka`` compares
features themselves (centred kernel alignment).
"""

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
    distances = pdist(_finite(features), "correlation")
    # The correlation with a constant row is undefined: take that image to be like no other.
    return squareform(np.nan_to_num(distances, nan=1.0))


def cka(
    first: Float[np.ndarray, "images features"], second: Float[np.ndarray, "images others"], *, debiased: bool = False
) -> float:
    r"""Compute the linear centred kernel alignment of two sets of features for the same images: 1 if they are alike.

    .. math:: CKA = \frac{\|Y^\top X\|_F^2}{\|X^\top X\|_F \, \|Y^\top Y\|_F}

    with centred features (Kornblith et al., 2019). It does not change when features are rotated or scaled, so layers of
    any widths can be compared, and layers with neurons.

    Args:
        first: one row for each image, such as ``activations`` returns.
        second: one row for each of the same images.
        debiased: use the unbiased estimate of Song et al. (2012). The plain one tends to 1 where there are many more
            features than images, even if the features are unrelated. Needs at least four images.

    >>> features = np.random.default_rng(0).normal(size=(8, 5))
    >>> rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    >>> round(cka(features, 3 * features @ rotation), 6)
    1.0
    """
    if len(first) != len(second):
        raise ValueError(
            f"`first` and `second` must have a row for each of the same images, got {len(first)} and {len(second)}"
        )
    if len(first) < (4 if debiased else 2):
        raise ValueError(f"CKA needs at least {4 if debiased else 2} images, got {len(first)}")
    kernels = [_kernel(features, debiased=debiased) for features in (first, second)]
    product = _unbiased_product if debiased else _product
    own = [product(kernel, kernel) for kernel in kernels]
    if min(own) <= 0:
        return 0.0  # constant features are like no others
    return product(*kernels) / float(np.sqrt(own[0] * own[1]))


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


def _finite(features: np.ndarray) -> np.ndarray:
    rows = np.asarray(features, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise ValueError("`features` contains NaN or infinity; the network's activations overflow")
    return rows


def _kernel(features: np.ndarray, *, debiased: bool) -> np.ndarray:
    """Return the inner products of centred rows; without those of a row with itself, if the estimate is unbiased."""
    rows = _finite(features)
    rows = rows - rows.mean(axis=0)
    kernel = rows @ rows.T
    if debiased:
        np.fill_diagonal(kernel, 0.0)
    return kernel


def _product(first: np.ndarray, second: np.ndarray) -> float:
    return float((first * second).sum())


def _unbiased_product(first: np.ndarray, second: np.ndarray) -> float:
    """Return HSIC₁ of Song et al. (2012), Eq. 5, up to a factor that cancels in the ratio."""
    count = len(first)
    sums = first.sum() * second.sum() / ((count - 1) * (count - 2))
    return float((first * second).sum() + sums - 2 / (count - 2) * first.sum(axis=0) @ second.sum(axis=0))
