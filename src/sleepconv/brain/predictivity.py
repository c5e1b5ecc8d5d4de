"""How well a layer predicts neurons: cross-validated regression, and the ceiling that the neurons' noise sets."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.stats import pearsonr
from sklearn.cross_decomposition import PLSRegression
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit

from sleepconv.brain.recordings import mean_over_repeats

COMPONENTS = 25
FOLDS = 10
_Groups = Shaped[np.ndarray, "images"] | None
_Rows = Int[np.ndarray, "chosen"]
_Regression = Literal["pls", "ridge"]
# Ridge penalties, as multiples of the mean squared length of the features' principal axes.
_PENALTIES = np.logspace(-4, 4, 17)
# An axis whose squared length is less than this fraction of the longest one's is rounding error.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Predictivity:
    """Held-out correlations of every neuron in every split, with their summary.

    Attributes:
        correlations: Pearson r of each neuron on the held-out images of each split; NaN if its responses to them are
            constant, or if there is only one image.
        ceiling: the r that a perfect prediction of the mean responses would reach, √reliability; None without repeats.

    >>> fit = Predictivity(np.array([[0.3, 0.5, 0.4], [0.4, 0.4, 0.4]]), ceiling=0.8)
    >>> round(fit.r, 2), round(fit.score, 2)
    (0.4, 0.25)
    """

    correlations: Float[np.ndarray, "splits neurons"]
    ceiling: float | None = None

    @property
    def r_of_splits(self) -> Float[np.ndarray, "splits"]:
        """Median over neurons in each split; NaN where no neuron varies."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
            return np.nanmedian(self.correlations, axis=1)

    @property
    def r(self) -> float:
        """Median over neurons, averaged over splits."""
        return float(np.nanmean(self.r_of_splits))

    @property
    def r_error(self) -> float:
        """Standard deviation of r over splits."""
        return float(np.nanstd(self.r_of_splits, ddof=1))

    @property
    def score(self) -> float | None:
        r"""Fraction of the explainable variance that is explained.

        .. math:: (r / \text{ceiling})^2 = r^2 / \text{reliability}

        As ``explained_variance`` of Brain-Score 2.4, which calls the reliability "ceiling". A negative r has the
        score 0.
        """
        return None if self.ceiling is None else (max(self.r, 0.0) / self.ceiling) ** 2

    @property
    def score_error(self) -> float | None:
        """Standard deviation of the score over splits."""
        if self.ceiling is None:
            return None
        return float(np.nanstd((np.maximum(self.r_of_splits, 0) / self.ceiling) ** 2, ddof=1))


def predictivity(
    features: Float[np.ndarray, "images features"],
    responses: Float[np.ndarray, "images neurons"],
    *,
    regression: _Regression = "pls",
    components: int = COMPONENTS,
    groups: _Groups = None,
    folds: int = FOLDS,
    seed: int = 0,
    ceiling: float | None = None,
) -> Predictivity:
    """Predict every neuron from the features on images that the regression has not seen.

    Call `principal_axes` first if there are more features than images: it shortens them without changing the result.

    Args:
        features: a layer's activations.
        responses: mean responses, without NaN.
        regression: partial least squares on centred, unscaled features ("pls"), or ridge regression with one penalty
            per neuron, chosen by leave-one-out on the training images ("ridge").
        components: of partial least squares.
        groups: images of one group are never split between training and test.
        folds: of cross-validation.
        seed: of the folds.
        ceiling: of the responses, to compute a score (see `ceiling`).

    >>> random = np.random.default_rng(0)
    >>> features = random.normal(size=(200, 30))
    >>> round(predictivity(features, features @ random.normal(size=(30, 5))).r, 2)
    1.0
    """
    if len(features) != len(responses):
        raise ValueError(
            f"`features` and `responses` must have one row per image, got {len(features)} and {len(responses)} rows"
        )
    held_out = [
        correlations(
            _predict(regression, components, features[train], responses[train], features[test]), responses[test]
        )
        for train, test in splits(len(features), groups=groups, folds=folds, seed=seed)
    ]
    return Predictivity(np.stack(held_out), ceiling)


def ceiling(repeats: Float[np.ndarray, "images neurons repeats"], *, seed: int = 0) -> float:
    """Estimate the r that the true mean responses would reach: the root of the median neuron's `reliability`.

    >>> round(ceiling(np.arange(8.0).reshape(8, 1, 1) + np.zeros((8, 2, 3))), 6)
    1.0
    """
    found = reliability(repeats, seed=seed)
    if np.isnan(found).all(axis=0).all():
        raise ValueError("a ceiling needs neurons with at least two repeats of two images; these have none")
    median = float(np.nanmedian(found, axis=1).mean())
    if not median > 0:
        raise ValueError(
            f"the repeats do not agree (median reliability {median:.2g}), so there is no ceiling to compare with"
        )
    return median**0.5


def reliability(
    repeats: Float[np.ndarray, "images neurons repeats"], *, splits: int = 10, seed: int = 0
) -> Float[np.ndarray, "splits neurons"]:
    r"""Correlate the means of two random halves of the repeats, corrected to the full number of repeats.

    .. math:: \rho = 2 r / (1 + r)

    Spearman-Brown. Missing repeats are NaN; those that an image has are dealt to the halves in turn. Images with fewer
    than two repeats are ignored.

    >>> random = np.random.default_rng(0)
    >>> signal, noise = random.normal(size=(2000, 1, 1)), random.normal(size=(2000, 1, 4))
    >>> bool(0.75 < reliability(signal + noise).mean() < 0.85)
    True
    """
    if repeats.ndim != 3:
        raise ValueError(
            f"`repeats` must be images × neurons × repeats, got shape {repeats.shape}; without repeats there is no "
            "ceiling"
        )
    random = np.random.default_rng(seed)
    halves = [_half_means(repeats, random) for _ in range(splits)]
    r = np.stack([_paired(first, second) for first, second in halves])
    with np.errstate(divide="ignore"):
        return 2 * r / (1 + r)


def principal_axes(
    features: Float[np.ndarray, "all_images features"], rows: _Rows | slice = slice(None), *, block: int = 4096
) -> Float[np.ndarray, "images axes"]:
    """Rotate features onto their principal axes, keeping every axis along which they vary.

    Both regressions depend on distances and angles only, so predictions stay the same, but there are at most as many
    features as images, and none if a layer responds identically to all of them.

    Args:
        features: one row per image; read in blocks of columns, so they may be memory-mapped.
        rows: the images to use.
        block: columns per block.

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
        raise ValueError("`features` contains NaN or infinity; the network's activations overflow")
    lengths, directions = np.linalg.eigh(products)
    kept = lengths > max(lengths[-1], 0) * _ROUNDING
    return (directions[:, kept] * np.sqrt(lengths[kept]))[:, ::-1]


def splits(count: int, *, groups: _Groups = None, folds: int = FOLDS, seed: int = 0) -> Iterator[tuple[_Rows, _Rows]]:
    """Yield training and test rows of every fold; each image is tested once, and groups are not split.

    >>> [test.tolist() for _, test in splits(4, groups=np.array([7, 7, 8, 8]), folds=10)]
    [[2, 3], [0, 1]]
    """
    if groups is None:
        yield from KFold(min(folds, count), shuffle=True, random_state=seed).split(np.empty((count, 1)))
        return
    kinds = len(np.unique(groups))
    if kinds < 2:
        raise ValueError(f"all {count} images are in one group, so none can be held out")
    yield from GroupKFold(min(folds, kinds)).split(np.empty((count, 1)), groups=groups)


def halves(count: int, *, groups: _Groups = None, seed: int = 0) -> tuple[_Rows, _Rows]:
    """Split the images into a half to choose a layer on and a half to score it on, without splitting groups.

    >>> [half.tolist() for half in halves(9, groups=np.array([0, 0, 0, 0, 1, 1, 2, 2, 3]))]
    [[4, 5, 6, 7], [0, 1, 2, 3, 8]]
    """
    images = np.empty((count, 1))
    if count < 2:
        raise ValueError(f"two halves need at least 2 images, got {count}")
    if groups is None:
        first, second = next(ShuffleSplit(1, test_size=0.5, random_state=seed).split(images))
        return np.sort(first), np.sort(second)
    if (kinds := len(np.unique(groups))) < 4:
        raise ValueError(f"two halves need at least 4 groups of images, got {kinds}")
    return next(GroupKFold(2).split(images, groups=groups))


def varying(responses: Float[np.ndarray, "images neurons"]) -> Bool[np.ndarray, "neurons"]:
    """Mark the neurons that can be predicted: those with a response to every image that is not constant.

    >>> varying(np.array([[1.0, 2.0, np.nan], [1.0, 3.0, 5.0]]))
    array([False,  True, False])
    """
    return ~np.isnan(responses).any(axis=0) & (responses.max(axis=0) > responses.min(axis=0))


def correlations(prediction: np.ndarray, responses: np.ndarray) -> np.ndarray:
    """Compute Pearson r per neuron: 0 for a constant prediction, NaN for a constant neuron."""
    if len(responses) < 2:
        return np.full(responses.shape[1], np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        r = pearsonr(prediction, responses, axis=0).statistic
    constant = responses.max(axis=0) == responses.min(axis=0)
    return np.where(constant, np.nan, np.nan_to_num(r))


def _predict(
    regression: _Regression, components: int, features: np.ndarray, responses: np.ndarray, test: np.ndarray
) -> np.ndarray:
    if not (rank := _rank(features)):
        return np.zeros((len(test), responses.shape[1]))
    if regression == "ridge":
        centred = features - features.mean(axis=0)
        scale = np.square(centred).sum() / min(features.shape)
        model = RidgeCV(_PENALTIES * scale, alpha_per_target=True).fit(features, responses)
    elif regression == "pls":
        if len(features) <= components:
            raise ValueError(
                f"{len(features)} training images are too few for {components} components; "
                "use more images, fewer folds or fewer components"
            )
        model = PLSRegression(min(components, rank), scale=False)
        with warnings.catch_warnings():
            # A layer that explains the training images completely leaves nothing for further components, and equally
            # good directions keep the power iteration from converging: neither changes the predictions.
            warnings.filterwarnings("ignore", "y residual is constant", UserWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(features, responses)
    else:
        raise ValueError(f"`regression` must be 'pls' or 'ridge', got {regression!r}")
    return model.predict(test).reshape(len(test), -1)


def _rank(features: np.ndarray) -> int:
    """Count the directions that the training images span; further components would fit rounding errors."""
    centred = features - features.mean(axis=0)
    short = centred if centred.shape[0] < centred.shape[1] else centred.T
    lengths = np.linalg.eigvalsh(short @ short.T)
    return int((lengths > lengths.max(initial=0) * _ROUNDING).sum())


def _half_means(repeats: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Shuffle the repeats that each image has and deal them to two halves in turn."""
    keys = random.random(repeats.shape, dtype=np.float32)
    keys[np.isnan(repeats)] = 2
    dealt = np.take_along_axis(repeats, keys.argsort(axis=2), axis=2)
    first, second = (mean_over_repeats(dealt[:, :, start::2]) for start in (0, 1))
    return first, second


def _paired(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Correlate over the images that both halves have."""
    both = ~np.isnan(first) & ~np.isnan(second)
    if both.all():
        return correlations(first, second)
    columns = range(first.shape[1])
    return np.array([correlations(first[both[:, i], i, None], second[both[:, i], i, None])[0] for i in columns])
