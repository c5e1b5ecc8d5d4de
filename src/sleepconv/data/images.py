"""Labelled images held as one uint8 tensor, and the split of a training set by seed."""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from sleepconv.data.randomness import random_stream


@dataclass(frozen=True)
class Images:
    """Labelled images; ``rows`` says which of the stored ones belong, so that a split copies no pixel.

    >>> images = Images(torch.zeros(10, 3, 4, 4, dtype=torch.uint8), torch.arange(10) % 2, ("cat", "dog"))
    >>> train, validation = images.split(held_out=3, seed=0)
    >>> len(train), len(validation)
    (7, 3)
    """

    pixels: UInt8[Tensor, "stored channels height width"]
    labels: Int64[Tensor, "stored"]
    classes: tuple[str, ...]
    rows: Int64[Tensor, "images"] = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Refuse labels that name no class or do not match the images in number."""
        if len(self.labels) != len(self.pixels):
            raise ValueError(f"{len(self.pixels)} images came with {len(self.labels)} labels; each image needs one")
        check_labels(self.labels, len(self.classes), "these images")
        if self.rows is None:
            object.__setattr__(self, "rows", torch.arange(len(self.labels)))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width."""
        return self.pixels.shape[2], self.pixels.shape[3]

    def take(self, positions: Int64[Tensor, "taken"]) -> tuple[Tensor, Tensor]:
        """Pixels and labels of some of the images, by their place among ``rows``."""
        rows = self.rows[positions]
        return self.pixels.index_select(0, rows), self.labels[rows]

    def to(self, device: torch.device | str) -> "Images":
        """The same images on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("pixels", "labels", "rows")}
        return replace(self, **moved)

    def split(self, held_out: int, seed: int = 0) -> tuple["Images", "Images"]:
        """Split off ``held_out`` random images: (the rest, the held-out ones). The seed decides which."""
        kept, held = split_rows(len(self), held_out, seed)
        return replace(self, rows=self.rows[kept]), replace(self, rows=self.rows[held])


def split_rows(count: int, held_out: int, seed: int) -> tuple[Int64[Tensor, "kept"], Int64[Tensor, "held_out"]]:
    """Choose ``held_out`` of ``count`` numbers by seed; both parts come sorted.

    >>> split_rows(5, held_out=0, seed=0)[0]
    tensor([0, 1, 2, 3, 4])
    """
    if not 0 <= held_out < count:
        raise ValueError(f"cannot hold out {held_out} of {count} images; give a number from 0 to {count - 1}")
    order = random_stream("split", seed=seed).permutation(count)
    return torch.from_numpy(np.sort(order[held_out:])), torch.from_numpy(np.sort(order[:held_out]))


def check_labels(labels: Int64[Tensor, "images"], classes: int, where: object) -> None:
    """Refuse a label that names no class, with the first record that has one."""
    wrong = ((labels < 0) | (labels >= classes)).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ValueError(
            f"record {first} of {where} has label {int(labels[first])}, but the {classes} classes are "
            f"numbered 0 to {classes - 1} ({len(wrong)} such records); it is damaged or another dataset"
        )
