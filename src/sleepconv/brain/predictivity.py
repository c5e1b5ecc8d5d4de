"""Representational similarity: which images a layer and a region take to be alike, with a ceiling from subjects."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.spatial.distance import pdist, squareform
from scipy.stats import pearsonr, rankdata, spearmanr
from sklearn.cross_decomposition import PLSRegression
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit

from sleepconv.brain.recordings import mean_over_repeats

Groups = Shaped[np.ndarray, "images"] | None
Rows = Int[np.ndarray, "chosen"]
Regression = Literal["pls", "ridge"]

COMPONENTS = 25
FOLDS = 10
# Ridge penalties, as multiples of the mean squared length of the features' principal axes.
PENALTIES = np.logspace(-4, 4, 17)
# The part of the longest axis's squared length below which an axis is rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Predictivity:
    """Held-out correlations of every neuron in every split, and what becomes of them.

    Attributes:
        correlations: Pearson r of each neuron on the held-out images of each split; NaN where it answered the same
            to all of them, or where there is but one.
        ceiling: the r that a perfect prediction of the mean responses would reach, √reliability; None without repeats.

    >>> fit = Predictivity(np.array([[0.3, 0.5, 0.4], [0.4, 0.4, 0.4]]), ceiling=0.8)
    >>> round(fit.r, 2), round(fit.score, 2)
    (0.4, 0.25)
    """

    correlations: Float[np.ndarray, "splits neurons"]
    ceiling: float | None = None

    @property
    def r_of_splits(self) -> Float[np.ndarray, "splits"]:
        """The median over neurons, in each split; NaN where none varies."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
            return np.nanmedian(self.correlations, axis=1)

    @property
    def r(self) -> float:
        """The median over neurons, averaged over splits."""
        return float(np.nanmean(self.r_of_splits))

    @property
    def r_error(self) -> float:
        """The standard deviation of r over splits."""
        return float(np.nanstd(self.r_of_splits, ddof=1))

    @property
    def score(self) -> float | None:
        r"""The part of the explainable variance that is explained.

        .. math:: (r / \text{ceiling})^2 = r^2 / \text{reliability}

        As in ``explained_variance`` of Brain-Score 2.4, where "ceiling" is the name of the reliability. Predictions
        that go the wrong way explain nothing: a negative r has the score 0.
        """
        return None if self.ceiling is None else (max(self.r, 0.0) / self.ceiling) ** 2

    @property
    def score_error(self) -> float | None:
        """The standard deviation of the score over splits."""
        if self.ceiling is None:
            return None
        return float(np.nanstd((np.maximum(self.r_of_splits, 0) / self.ceiling) ** 2, ddof=1))


def predictivity(
    features: Float[np.ndarray, "images features"],
    responses: Float[np.ndarray, "images neurons"],
    *,
    regression: Regression = "pls",
    components: int = COMPONENTS,
    groups: Groups = None,
    folds: int = FOLDS,
    seed: int = 0,
    ceiling: float | None = None,
) -> Predictivity:
    """Predict every neuron from the features on images that the regression has not seen.

    Partial least squares with 25 components on centred, unscaled features, or ridge regression with one penalty per
    neuron, chosen by leave-one-out on the training images. `principal_axes` makes long features short beforehand
    without changing the result.

    >>> random = np.random.default_rng(0)
    >>> features = random.normal(size=(200, 30))
    >>> round(predictivity(features, features @ random.normal(size=(30, 5))).r, 2)
    1.0
    """
    if len(features) != len(responses):
        raise ValueError(f"features of {len(features)} images came with responses to {len(responses)}")
    held_out = [
        correlations(
            _predict(regression, components, features[train], responses[train], features[test]), responses[test]
        )
        for train, test in splits(len(features), groups=groups, folds=folds, seed=seed)
    ]
    return Predictivity(np.stack(held_out), ceiling)


def splits(count: int, *, groups: Groups = None, folds: int = FOLDS, seed: int = 0) -> Iterator[tuple[Rows, Rows]]:
    """Training and test rows of every fold; each image is tested once, and no group stands on both sides.

    >>> [test.tolist() for _, test in splits(4, groups=np.array([7, 7, 8, 8]), folds=10)]
    [[2, 3], [0, 1]]
    """
    if groups is None:
        yield from KFold(min(folds, count), shuffle=True, random_state=seed).split(np.empty((count, 1)))
        return
    kinds = len(np.unique(groups))
    if kinds < 2:
        raise ValueError(f"all {count} images belong to one group, so none can be held out")
    yield from GroupKFold(min(folds, kinds)).split(np.empty((count, 1)), groups=groups)


def halves(count: int, *, groups: Groups = None, seed: int = 0) -> tuple[Rows, Rows]:
    """Two halves of the images: one to choose a layer on, one to score it on; no group is in both.

    >>> [half.tolist() for half in halves(9, groups=np.array([0, 0, 0, 0, 1, 1, 2, 2, 3]))]
    [[4, 5, 6, 7], [0, 1, 2, 3, 8]]
    """
    images = np.empty((count, 1))
    if count < 2:
        raise ValueError(f"{count} images are too few: some to choose a layer on, some to score it on")
    if groups is None:
        first, second = next(ShuffleSplit(1, test_size=0.5, random_state=seed).split(images))
        return np.sort(first), np.sort(second)
    if (kinds := len(np.unique(groups))) < 4:
        raise ValueError(f"{kinds} groups of images are too few: two to choose a layer on, two to score it on")
    return next(GroupKFold(2).split(images, groups=groups))


def principal_axes(
    features: Float[np.ndarray, "all_images features"], rows: Rows | slice = slice(None), *, block: int = 4096
) -> Float[np.ndarray, "images axes"]:
    """The features seen along their principal axes: a rotation, with no axis that varies left out.

    A layer that answers the same to all images has none.

    Both regressions depend on distances and angles only, so their predictions stay the same, but an image has at most
    as many numbers as there are images. Features are read by blocks of columns, so they may lie in a file; ``rows``
    says which images to take.

    >>> features = np.random.default_rng(0).normal(size=(5, 1000))
    >>> axes = principal_axes(features)
    >>> axes.shape, bool(np.allclose(axes @ axes.T, (features - features.mean(0)) @ (features - features.mean(0)).T))
    ((5, 4), True)
    """
    count = len(np.arange(len(features))[rows])
    products = np.zeros((count, count))
    for first in range(0, features.shape[1], block):
        columns = features[:, first : first + block][rows].astype(np.float64)
        columns = columns - columns.mean(axis=0)
        products += columns @ columns.T
    if not np.isfinite(products).all():
        raise ValueError("the features are not finite; the network's answers overflow")
    lengths, directions = np.linalg.eigh(products)
    kept = lengths > max(lengths[-1], 0) * ROUNDING
    return (directions[:, kept] * np.sqrt(lengths[kept]))[:, ::-1]


def varying(responses: Float[np.ndarray, "images neurons"]) -> Bool[np.ndarray, "neurons"]:
    """Which neurons can be predicted: a response to every image, and not the same to all.

    >>> varying(np.array([[1.0, 2.0, np.nan], [1.0, 3.0, 5.0]]))
    array([False,  True, False])
    """
    return ~np.isnan(responses).any(axis=0) & (responses.max(axis=0) > responses.min(axis=0))


def _predict(
    regression: Regression, components: int, features: np.ndarray, responses: np.ndarray, test: np.ndarray
) -> np.ndarray:
    if not (rank := _rank(features)):
        return np.zeros((len(test), responses.shape[1]))
    if regression == "ridge":
        centred = features - features.mean(axis=0)
        scale = np.square(centred).sum() / min(features.shape)
        model = RidgeCV(PENALTIES * scale, alpha_per_target=True).fit(features, responses)
    elif regression == "pls":
        if len(features) <= components:
            raise ValueError(
                f"{len(features)} training images are too few for {components} components; "
                f"give more images, fewer folds or fewer components"
            )
        model = PLSRegression(min(components, rank), scale=False)
        with warnings.catch_warnings():
            # Nothing is left for further components where a layer explains the training images completely, and
            # directions that explain equally much are not told apart: neither changes how well it predicts.
            warnings.filterwarnings("ignore", "y residual is constant", UserWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(features, responses)
    else:
        raise ValueError(f'regression is "pls" or "ridge", not {regression!r}')
    return model.predict(test).reshape(len(test), -1)


def _rank(features: np.ndarray) -> int:
    """How many directions the training images span; further components would be learned from rounding."""
    centred = features - features.mean(axis=0)
    short = centred if centred.shape[0] < centred.shape[1] else centred.T
    lengths = np.linalg.eigvalsh(short @ short.T)
    return int((lengths > lengths.max(initial=0) * ROUNDING).sum())


def correlations(prediction: np.ndarray, responses: np.ndarray) -> np.ndarray:
    """Pearson r per neuron: 0 for a prediction that never varies, NaN for a neuron that never does."""
    if len(responses) < 2:
        return np.full(responses.shape[1], np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        r = pearsonr(prediction, responses, axis=0).statistic
    constant = responses.max(axis=0) == responses.min(axis=0)
    return np.where(constant, np.nan, np.nan_to_num(r))


def reliability(
    repeats: Float[np.ndarray, "images neurons repeats"], *, splits: int = 10, seed: int = 0
) -> Float[np.ndarray, "splits neurons"]:
    r"""Correlate the means of two random halves of the repeats, corrected to the length of the whole.

    .. math:: \rho = 2 r / (1 + r)

    Spearman-Brown. Absent repeats are NaN: the repeats that an image has are dealt to the halves in turn. Images with
    less than two repeats do not count.

    >>> random = np.random.default_rng(0)
    >>> signal, noise = random.normal(size=(2000, 1, 1)), random.normal(size=(2000, 1, 4))
    >>> bool(0.75 < reliability(signal + noise).mean() < 0.85)
    True
    """
    if repeats.ndim != 3:
        raise ValueError(
            f"a ceiling needs images × neurons × repeats, not an array of shape {repeats.shape}; responses without "
            "repeats have none"
        )
    random = np.random.default_rng(seed)
    halves = [_half_means(repeats, random) for _ in range(splits)]
    r = np.stack([_paired(first, second) for first, second in halves])
    with np.errstate(divide="ignore"):
        return 2 * r / (1 + r)


def ceiling(repeats: Float[np.ndarray, "images neurons repeats"], *, seed: int = 0) -> float:
    """The r that the true mean responses would reach: the root of the median neuron's `reliability`.

    >>> round(ceiling(np.arange(8.0).reshape(8, 1, 1) + np.zeros((8, 2, 3))), 6)
    1.0
    """
    found = reliability(repeats, seed=seed)
    if np.isnan(found).all(axis=0).all():
        raise ValueError("no neuron has two repeats of two images or more, so there is no ceiling")
    median = float(np.nanmedian(found, axis=1).mean())
    if not median > 0:
        raise ValueError(
            f"the median neuron's reliability is {median:.2g}: these repeats do not agree, no fit can be judged"
        )
    return median**0.5


def _half_means(repeats: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Order each image's present repeats at random and deal them out in turn."""
    keys = random.random(repeats.shape, dtype=np.float32)
    keys[np.isnan(repeats)] = 2
    dealt = np.take_along_axis(repeats, keys.argsort(axis=2), axis=2)
    first, second = (mean_over_repeats(dealt[:, :, start::2]) for start in (0, 1))
    return first, second


def _paired(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Correlations over the images that both halves have; all at once where none is missing."""
    both = ~np.isnan(first) & ~np.isnan(second)
    if both.all():
        return correlations(first, second)
    columns = range(first.shape[1])
    return np.array([correlations(first[both[:, i], i, None], second[both[:, i], i, None])[0] for i in columns])


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
