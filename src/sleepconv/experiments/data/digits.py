"""The default dataset: scikit-learn's 1,797 handwritten digits, on a visual field larger than they are."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from sleepconv.experiments.data.description import Dataset, StrPath
from sleepconv.experiments.data.images import ChannelStatistics, Images
from sleepconv.experiments.data.translations import Translate

DIGIT_SIZE = 8
FIELD = (12, 24)
SEEN_COLUMNS = range(5)
"""The columns of ``digits-left``, in the left part of the field."""
_TEST_IMAGES = 360
# The background of the digits must stay 0, so only the range is normalised: to [0, 1].
_UNIT_RANGE = ChannelStatistics((0.0,), (255.0,))


def digits(*, train: bool = True, held_out: int = _TEST_IMAGES, seed: int = 0) -> Images:
    """Read the digits, uint8, 1×8×8: ``held_out`` of them for testing, the others for training.

    >>> len(digits(train=True)), len(digits(train=False))
    (1437, 360)
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install scikit-learn") from error
    raw = load_digits()
    pixels = torch.from_numpy(raw.images).mul(255 / 16).round().to(torch.uint8)[:, None]
    images = Images(pixels, torch.from_numpy(raw.target).long(), tuple("0123456789"))
    return images.split(held_out, seed)[0 if train else 1]


def on_visual_field(
    *, rows: Sequence[int] | None = None, columns: Sequence[int] | None = None, field: tuple[int, int] = FIELD
) -> Translate:
    """Place digits on a black field, with their upper left corners drawn from ``rows`` × ``columns``.

    By default they are placed wherever a digit fits; with ``columns=range(5)`` only on the left.

    >>> place = on_visual_field(rows=[2], columns=[16])
    >>> place(torch.full((1, 1, 8, 8), 255, dtype=torch.uint8), torch.rand(1, 3))[0, 0].nonzero()[0]
    tensor([ 2, 16])
    """
    chosen = []
    for name, corners, extent in (("rows", rows, field[0]), ("columns", columns, field[1])):
        corners = range(extent - DIGIT_SIZE + 1) if corners is None else corners
        if not len(corners) or min(corners) < 0 or max(corners) > extent - DIGIT_SIZE:
            raise ValueError(
                f"`{name}` must be upper left corners of {DIGIT_SIZE}×{DIGIT_SIZE} digits on a {field[0]}×{field[1]} "
                f"field, one or more from 0 to {extent - DIGIT_SIZE}, got {list(corners)}"
            )
        chosen.append(corners)
    return Translate(chosen[0], chosen[1], size=field, statistics=_UNIT_RANGE)


def _read(data_dir: StrPath | None = None, *, train: bool = True, complete: bool = True) -> Images:
    return digits(train=train)


DIGITS = Dataset(
    name="digits",
    title="Digits (scikit-learn)",
    read=_read,
    train_images=1_437,
    test_images=_TEST_IMAGES,
    held_out=144,
    folder="",
    advice="comes with scikit-learn: pip install scikit-learn",
)
DIGITS_LEFT = replace(DIGITS, name="digits-left", title="Digits on the left (scikit-learn)")
"""The dataset of the demo: digits only in the left part of the field, tested in the middle of that part."""
