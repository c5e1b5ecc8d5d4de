"""The embedded default: scikit-learn's 1,797 handwritten digits, on a visual field larger than they are."""

from collections.abc import Sequence

import torch

from sleepconv.experiments.data.description import Dataset
from sleepconv.experiments.data.images import Images
from sleepconv.experiments.data.images import Statistics
from sleepconv.experiments.data.translations import Translate

DIGITS = Dataset(
    name="digits",
    title="Digits (scikit-learn)",
    folder="",
    advice="comes with scikit-learn: pip install 'sleepconv[data]'",
)
HELD_OUT = 360
SIZE = 8
FIELD = (12, 24)
# The background of the digits is 0 and must stay 0, so only the range is normalised: to [0, 1].
UNIT_RANGE = Statistics((0.0,), (255.0,))


def digits(*, train: bool = True, held_out: int = HELD_OUT, seed: int = 0) -> Images:
    """Read the digits, uint8, 1×8×8: all but ``held_out`` for training, the held-out ones for testing.

    >>> len(digits(train=True)), len(digits(train=False))
    (1437, 360)
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install 'sleepconv[data]'") from error
    raw = load_digits()
    pixels = torch.from_numpy(raw.images).mul(255 / 16).round().to(torch.uint8)[:, None]
    images = Images(pixels, torch.from_numpy(raw.target).long(), tuple("0123456789"))
    return images.split(held_out, seed)[0 if train else 1]


def on_visual_field(
    *, rows: Sequence[int] | None = None, columns: Sequence[int] | None = None, field: tuple[int, int] = FIELD
) -> Translate:
    """Place digits on a black field, with their upper left corner at one of ``rows`` × ``columns``.

    By default at any place where a digit fits; with ``columns=range(5)`` only on the left.

    >>> place = on_visual_field(rows=[2], columns=[16])
    >>> place(torch.full((1, 1, 8, 8), 255, dtype=torch.uint8), torch.rand(1, 3))[0, 0].nonzero()[0]
    tensor([ 2, 16])
    """
    chosen = []
    for name, corners, extent in (("rows", rows, field[0]), ("columns", columns, field[1])):
        corners = range(extent - SIZE + 1) if corners is None else corners
        if not len(corners) or min(corners) < 0 or max(corners) > extent - SIZE:
            raise ValueError(
                f"{name} are upper left corners of {SIZE}×{SIZE} digits on a {field[0]}×{field[1]} field: "
                f"one or more from 0 to {extent - SIZE}, not {list(corners)}"
            )
        chosen.append(corners)
    return Translate(chosen[0], chosen[1], size=field, statistics=UNIT_RANGE)
