"""How reliable neurons are: the split-half ceiling."""

import numpy as np
from jaxtyping import Float

from sleepconv.brain.datasets import mean_over_repeats
from sleepconv.brain.predictivity import correlations


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
