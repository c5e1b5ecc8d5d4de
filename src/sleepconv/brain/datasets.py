"""What people and animals answered to images: neurons' responses, dissimilarities and label counts, checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped, UInt8

Pictures = UInt8[np.ndarray, "images height width ..."]
FEWEST_IMAGES = 8


@dataclass(frozen=True)
class Recording:
    """Images and the responses of a region's neurons to them.

    Args:
        name: of the data.
        region: V1, V2, V4 or IT; others are reported too, but have no column in the table.
        images: uint8, grey or RGB.
        responses: (images, neurons), or (images, neurons, repeats) with NaN where a repeat is absent.
        groups: images with the same mark (frames of one movie) never stand on both sides of a split.
        image_names: one for each image, if they have any.
        neuron_names: one for each neuron, if they have any.

    >>> pictures, responses = np.zeros((4, 8, 8), np.uint8), np.random.rand(4, 3, 2)
    >>> Recording("mine", "V4", pictures, responses).mean_responses().shape
    (4, 3)
    """

    name: str
    region: str
    images: Pictures
    responses: Float[np.ndarray, "images neurons ..."]
    groups: Shaped[np.ndarray, "images"] | None = None
    image_names: Sequence[str] = field(default=())
    neuron_names: Sequence[str] = field(default=())

    def __post_init__(self) -> None:
        """Refuse what does not fit together; groups become numbers."""
        check_images(self.name, self.images)
        if self.region == "behaviour":
            raise ValueError(f'{self.name}: region "behaviour" is that of label counts; a recording has V1, V4, ...')
        if self.responses.ndim not in (2, 3):
            raise ValueError(
                f"{self.name}: responses of shape {self.responses.shape}; expected images × neurons (× repeats)"
            )
        if self.responses.dtype.kind not in "fiub":
            raise ValueError(f"{self.name}: responses of type {self.responses.dtype}; expected real numbers")
        if self.groups is not None and np.ndim(self.groups) != 1:
            raise ValueError(f"{self.name}: groups of shape {np.shape(self.groups)}; expected one mark for each image")
        check_count(self.name, self.images, responses=self.responses, groups=self.groups)
        for what, names, count in [
            ("image", self.image_names, len(self.images)),
            ("neuron", self.neuron_names, self.responses.shape[1]),
        ]:
            if len(names) and len(names) != count:
                raise ValueError(f"{self.name}: {len(names)} {what} names for {count} {what}s")
        if np.isinf(self.responses).any():
            raise ValueError(f"{self.name}: some responses are infinite; absent ones are NaN")
        if self.groups is not None:
            object.__setattr__(self, "groups", np.unique(self.groups, return_inverse=True)[1].reshape(-1))

    @property
    def has_repeats(self) -> bool:
        """Whether a ceiling can be estimated."""
        return self.responses.ndim == 3 and bool(((~np.isnan(self.responses)).sum(axis=2) > 1).any())

    def mean_responses(self) -> Float[np.ndarray, "images neurons"]:
        """The mean over the repeats that are there; NaN where there is none."""
        return self.responses.astype(np.float64) if self.responses.ndim == 2 else mean_over_repeats(self.responses)

    def save(self, path: Path) -> None:
        """Write the open format, an ``.npz`` that `read_dataset` reads."""
        arrays: dict[str, Any] = {"name": self.name, "region": self.region, "images": self.images}
        arrays["responses"] = self.responses
        for key in ("groups", "image_names", "neuron_names"):
            if (values := getattr(self, key)) is not None and len(values):
                arrays[key] = np.asarray(values)
        np.savez_compressed(path, **arrays)


@dataclass(frozen=True)
class Dissimilarities:
    """Images and how differently each subject's region answers to every two of them.

    >>> rdms = np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))[None].repeat(2, axis=0)
    >>> len(Dissimilarities("mine", "IT", np.zeros((9, 8, 8), np.uint8), rdms).rdms)
    2
    """

    name: str
    region: str
    images: Pictures
    rdms: Float[np.ndarray, "subjects images images"]

    def __post_init__(self) -> None:
        """Refuse matrices that are not dissimilarities of these images."""
        check_images(self.name, self.images)
        count = len(self.images)
        if self.rdms.ndim != 3 or self.rdms.shape[1:] != (count, count) or not len(self.rdms):
            raise ValueError(f"{self.name}: matrices of shape {self.rdms.shape}; expected subjects × {count} × {count}")
        if count < FEWEST_IMAGES:
            raise ValueError(f"{self.name}: dissimilarities of {count} images; {FEWEST_IMAGES} or more can be halved")
        if not np.isfinite(self.rdms).all() or not np.allclose(self.rdms, self.rdms.swapaxes(1, 2), atol=1e-4):
            raise ValueError(f"{self.name}: dissimilarities must be finite and symmetric")
        pairs = self.rdms[:, *np.triu_indices(count, k=1)]
        if flat := np.flatnonzero(np.ptp(pairs, axis=1) == 0).tolist():
            raise ValueError(f"{self.name}: to subject {flat[0]} all images differ equally; leave it out")

    def save(self, path: Path) -> None:
        """Write the open format, an ``.npz`` that `read_dataset` reads."""
        np.savez_compressed(path, name=self.name, region=self.region, images=self.images, rdms=self.rdms)


@dataclass(frozen=True)
class LabelCounts:
    """How many people gave each label to each CIFAR-10 test image, in the official order.

    >>> LabelCounts("mine", np.array([[3, 1], [0, 4]])).counts.shape
    (2, 2)
    """

    name: str
    counts: Int[np.ndarray, "images classes"]
    region: str = "behaviour"

    def __post_init__(self) -> None:
        """Refuse what does not count; whole numbers of any size become such as can be multiplied."""
        if not np.issubdtype(self.counts.dtype, np.integer):
            raise ValueError(f"{self.name}: counts are whole numbers, not {self.counts.dtype}")
        object.__setattr__(self, "counts", self.counts.astype(np.int64))
        if self.counts.ndim != 2 or self.counts.min(initial=0) < 0 or (self.counts.sum(axis=1) < 2).any():
            raise ValueError(
                f"{self.name}: counts are images × classes, 0 or more, and each image has two labels or more"
            )


def mean_over_repeats(repeats: Float[np.ndarray, "images neurons repeats"]) -> Float[np.ndarray, "images neurons"]:
    """The mean of the repeats that are not NaN; NaN where none is.

    >>> mean_over_repeats(np.array([[[1.0, 3.0, np.nan]], [[np.nan, np.nan, np.nan]]]))
    array([[ 2.],
           [nan]])
    """
    present = ~np.isnan(repeats)
    total = np.where(present, repeats, 0).sum(axis=2, dtype=np.float64)
    return np.where(present.any(axis=2), total / np.maximum(present.sum(axis=2), 1), np.nan)


Dataset = Recording | Dissimilarities | LabelCounts


def check_images(name: str, images: np.ndarray) -> None:
    """Refuse what is not grey or RGB pictures of bytes."""
    channels = images.shape[3] if images.ndim == 4 else 1
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or channels not in (1, 3) or 0 in images.shape[1:]:
        raise ValueError(
            f"{name}: images of type {images.dtype} and shape {images.shape}; expected uint8 and "
            "images × height × width (× 1 or 3 channels)"
        )


def check_count(name: str, images: np.ndarray, **others: np.ndarray | None) -> None:
    """Refuse what does not come once per image."""
    for what, values in others.items():
        if values is not None and len(values) != len(images):
            raise ValueError(
                f"{name}: {len(images)} images came with {what} to {len(values)}; each image needs one row"
            )
