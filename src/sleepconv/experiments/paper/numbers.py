"""The paper's numbers, each in the table that it comes from (Pogodin et al., 2021).

Rows are named as the recipes are: ``sleep_every_10`` is the paper's "LC - ws(10)", ``4_repetitions`` its "LC - 4 reps".
Tables 1 and 4 to 12 have CIFAR-10, CIFAR-100 and TinyImageNet side by side; Diff is the paper's own and not always the
difference of the rounded accuracies.
"""

from dataclasses import dataclass
from typing import Any

from sleepconv.experiments.paper.rows import SMALL_DATASETS, TableName

_MISSING = "-"
SEEDS: dict[TableName, int] = {1: 5, 2: 1, 4: 5, 5: 5, 6: 5, 7: 5, 8: 5, 9: 5, 13: 1}


@dataclass(frozen=True)
class Accuracy:
    """Accuracy in percent, and its difference from the convolutional network. CIFAR-10 has no top-5."""

    top1: float
    top1_difference: float | None
    top5: float | None = None
    top5_difference: float | None = None


@dataclass(frozen=True)
class Rates:
    """AdamW's learning rate and weight decay."""

    learning_rate: float
    weight_decay: float


# Tables 1 and 5, mean over 5 runs, padding 4: top-1, Diff of CIFAR-10; top-1, Diff, top-5, Diff of each other.
_ACCURACY_PADDING_4 = """
convolutional    88.3     -  59.2     -  84.9     -  38.6     -  65.1     -
local            80.9  -7.4  49.8  -9.4  75.5  -9.4  29.6  -9.0  52.7 -12.4
4_repetitions    82.9  -5.4  52.1  -7.1  76.4  -8.5  31.9  -6.7  54.9 -10.2
8_repetitions    83.8  -4.5  54.3  -5.0  77.9  -7.0  33.0  -5.6  55.6  -9.5
16_repetitions   85.0  -3.3  55.9  -3.3  78.8  -6.1  34.0  -4.6  56.2  -8.8
sleep_every_1    87.4  -0.8  58.7  -0.5  83.4  -1.6  41.6   3.0  66.1   1.1
sleep_every_10   85.1  -3.2  55.7  -3.6  80.9  -4.0  37.4  -1.2  61.8  -3.2
sleep_every_100  82.0  -6.3  52.8  -6.4  80.1  -4.8  37.1  -1.5  62.8  -2.3
"""

# Table 4, mean over 5 runs, padding 0.
_ACCURACY_PADDING_0 = """
convolutional    84.1     -  49.5     -  78.2     -  26.0     -  51.2     -
local            67.2 -16.8  34.9 -14.6  62.2 -16.0  12.0 -14.1  30.4 -20.7
sleep_every_1    74.8  -9.3  41.8  -7.7  70.1  -8.1  24.9  -1.2  49.1  -2.1
sleep_every_10   75.9  -8.1  44.4  -5.1  72.0  -6.2  28.1   2.0  52.5   1.3
sleep_every_100  75.4  -8.6  43.4  -6.1  71.9  -6.3  27.4   1.3  51.9   0.8
"""

# Table 6, mean over 5 runs, padding 8.
_ACCURACY_PADDING_8 = """
convolutional    88.7     -  59.6     -  85.4     -  42.6     -  68.7     -
local            80.7  -8.0  47.7 -11.8  74.8 -10.6  31.9 -10.7  55.4 -13.3
4_repetitions    82.8  -6.0  50.6  -9.0  76.2  -9.2  35.5  -7.1  58.6 -10.1
8_repetitions    83.6  -5.1  53.0  -6.6  77.4  -8.0  35.8  -6.7  59.0  -9.7
16_repetitions   85.0  -3.8  55.6  -4.0  78.4  -7.0  37.9  -4.7  60.3  -8.4
sleep_every_1    87.8  -0.9  59.2  -0.4  84.0  -1.4  43.6   1.0  67.9  -0.9
sleep_every_10   84.3  -4.5  53.7  -5.8  80.4  -5.0  39.6  -2.9  64.5  -4.3
sleep_every_100  79.5  -9.3  50.0  -9.6  78.6  -6.8  39.2  -3.4  64.8  -3.9
"""

# Table 7, max - min over 5 runs, padding 0: top-1 of CIFAR-10; top-1, top-5 of each other.
_SPREAD_PADDING_0 = """
convolutional     0.5   1.0   1.7   1.0   0.4
local             0.4   1.6   1.5   1.0   1.7
sleep_every_1     0.5   1.3   1.3   1.2   2.0
sleep_every_10    0.8   1.0   0.7   1.8   2.1
sleep_every_100   0.9   0.7   0.9   1.0   1.3
"""

# Table 8, max - min over 5 runs, padding 4.
_SPREAD_PADDING_4 = """
convolutional     0.7   1.5   0.2   1.2   1.1
local             0.8   1.1   0.4   0.7   0.8
4_repetitions     0.8   1.3   0.8   0.5   0.8
8_repetitions     0.3   1.4   1.3   0.7   1.2
16_repetitions    0.7   0.7   0.6   0.9   0.5
sleep_every_1     0.5   1.1   0.9   0.9   0.6
sleep_every_10    0.6   1.1   0.3   0.6   1.2
sleep_every_100   0.7   1.0   0.6   0.2   0.9
"""

# Table 9, max - min over 5 runs, padding 8.
_SPREAD_PADDING_8 = """
convolutional     0.9   1.5   1.2   1.7   1.0
local             0.5   0.6   0.5   0.5   0.9
4_repetitions     0.4   0.9   0.3   0.6   0.8
8_repetitions     0.6   0.9   0.5   0.5   0.6
16_repetitions    0.9   0.9   0.6   0.5   1.1
sleep_every_1     0.4   1.2   1.5   0.7   0.7
sleep_every_10    0.2   1.4   0.9   1.4   1.2
sleep_every_100   0.4   0.5   0.7   0.7   0.9
"""

# Table 10, hyperparameters for padding 0: learning rate, weight decay of each dataset.
_RATES_PADDING_0 = """
convolutional     0.01   0.01   0.01   0.01  0.005   0.01
local            0.001   0.01  0.001   0.01  0.001 0.0001
sleep_every_1    0.001   0.01  0.001   0.01  0.001 0.0001
sleep_every_10  0.0005   0.01 0.0005 0.0001 0.0005   0.01
sleep_every_100 0.0001   0.01 0.0001   0.01  0.001 0.0001
"""

# Table 11, hyperparameters for padding 4.
_RATES_PADDING_4 = """
convolutional     0.01 0.0001   0.01   0.01  0.005 0.0001
local            0.001 0.0001 0.0005   0.01 0.0005 0.0001
4_repetitions    0.001   0.01  0.001   0.01 0.0005   0.01
8_repetitions   0.0005   0.01 0.0005 0.0001 0.0005   0.01
16_repetitions  0.0005   0.01 0.0005   0.01 0.0005   0.01
sleep_every_1    0.001   0.01  0.001 0.0001  0.001   0.01
sleep_every_10  0.0005   0.01 0.0005   0.01  0.001 0.0001
sleep_every_100 0.0005   0.01 0.0005   0.01  0.001   0.01
"""

# Table 12, hyperparameters for padding 8.
_RATES_PADDING_8 = """
convolutional     0.01   0.01   0.01   0.01  0.005   0.01
local            0.001   0.01 0.0005 0.0001  0.001   0.01
4_repetitions   0.0005   0.01  0.001 0.0001 0.0005   0.01
8_repetitions    0.001   0.01 0.0005 0.0001 0.0005 0.0001
16_repetitions  0.0005 0.0001 0.0005   0.01 0.0005   0.01
sleep_every_1    0.001 0.0001  0.001   0.01  0.001   0.01
sleep_every_10  0.0005   0.01 0.0005 0.0001  0.001 0.0001
sleep_every_100 0.0005   0.01 0.0005 0.0001  0.001 0.0001
"""

# Table 13, one run: top-1, Diff, top-5, Diff. The first five rows are Table 2.
_IMAGENET = """
convolutional                       63.5     -  84.7     -
local                               46.7 -16.8  70.0 -14.7
sleep_every_1                       61.7  -1.8  83.1  -1.6
sleep_every_10                      59.3  -4.2  81.1  -3.6
sleep_every_100                     54.5  -9.0  77.7  -7.0
first_convolutional_local           52.2 -11.3  75.1  -9.6
first_convolutional_sleep_every_1   63.6   0.1  84.5  -0.2
first_convolutional_sleep_every_10  61.6  -1.9  83.1  -1.6
first_convolutional_sleep_every_100  59.1  -4.4  81.1  -3.6
"""

# Appendix, Final hyperparameters on ImageNet: learning rate, weight decay.
_RATES_IMAGENET = """
convolutional                        0.001 0.01
local                               0.0005 0.01
sleep_every_1                        0.001 0.01
sleep_every_10                      0.0005 0.01
sleep_every_100                     0.0005 0.01
first_convolutional_local           0.0005 0.01
first_convolutional_sleep_every_1   0.0005 0.01
first_convolutional_sleep_every_10  0.0005 0.01
first_convolutional_sleep_every_100 0.0005 0.01
"""

# Table 3: average, V1, V2, V4, IT, behaviour.
_BRAIN_SCORE = """
convolutional   0.357 0.493 0.313 0.459 0.370 0.148
local           0.349 0.542 0.291 0.448 0.354 0.108
sleep_every_1   0.396 0.512 0.339 0.468 0.406 0.255
sleep_every_10  0.385 0.508 0.322 0.478 0.399 0.216
sleep_every_100 0.351 0.523 0.293 0.467 0.370 0.101
"""


def _parse(text: str) -> dict[str, list[Any]]:
    lines = [line.split() for line in text.strip().splitlines()]
    return {row: [None if value == _MISSING else float(value) for value in values] for row, *values in lines}


def _by_dataset(text: str, widths: tuple[int, ...]) -> dict[str, dict[str, list[Any]]]:
    """Return the columns of each dataset, which has so many of them."""
    starts = [sum(widths[:i]) for i in range(len(widths))]
    return {
        dataset: {row: values[start : start + width] for row, values in _parse(text).items()}
        for dataset, start, width in zip(SMALL_DATASETS, starts, widths, strict=True)
    }


def _accuracies(text: str) -> dict[str, dict[str, Accuracy]]:
    columns = _by_dataset(text, (2, 4, 4))
    return {d: {row: Accuracy(*values) for row, values in rows.items()} for d, rows in columns.items()}


def _rates(text: str) -> dict[str, dict[str, Rates]]:
    columns = _by_dataset(text, (2, 2, 2))
    return {d: {row: Rates(*values) for row, values in rows.items()} for d, rows in columns.items()}


_PADDING_4 = _accuracies(_ACCURACY_PADDING_4)
_TABLE_13 = {row: Accuracy(*values) for row, values in _parse(_IMAGENET).items()}

ACCURACY: dict[TableName, dict[str, dict[str, Accuracy]]] = {
    1: _PADDING_4,
    2: {"imagenet": {row: a for row, a in _TABLE_13.items() if not row.startswith("first_convolutional")}},
    4: _accuracies(_ACCURACY_PADDING_0),
    5: _PADDING_4,
    6: _accuracies(_ACCURACY_PADDING_8),
    13: {"imagenet": _TABLE_13},
}
"""``ACCURACY[table][dataset][row]``."""

SPREAD: dict[TableName, dict[str, dict[str, list[float | None]]]] = {
    7: _by_dataset(_SPREAD_PADDING_0, (1, 2, 2)),
    8: _by_dataset(_SPREAD_PADDING_4, (1, 2, 2)),
    9: _by_dataset(_SPREAD_PADDING_8, (1, 2, 2)),
}
"""``SPREAD[table][dataset][row]``: max - min over 5 runs, of top-1 and (but for CIFAR-10) top-5."""

RATES: dict[TableName, dict[str, dict[str, Rates]]] = {
    10: _rates(_RATES_PADDING_0),
    11: _rates(_RATES_PADDING_4),
    12: _rates(_RATES_PADDING_8),
}
"""``RATES[table][dataset][row]``."""

IMAGENET_RATES: dict[str, Rates] = {row: Rates(*values) for row, values in _parse(_RATES_IMAGENET).items()}
"""``IMAGENET_RATES[row]``."""

PUBLISHED_ERRORS = {
    "backprop_convolutional": 31.87,
    "backprop_local": 32.41,
    "feedback_alignment_local": 37.44,
    "direct_feedback_alignment_local": 44.41,
}
"""Test errors on CIFAR-10 in percent, by rule and connectivity: Bartunov et al. (2018), Table 1."""

_BRAIN_AREAS = ("average", "V1", "V2", "V4", "IT", "behaviour")
BRAIN_SCORE: dict[str, dict[str, float]] = {
    row: dict(zip(_BRAIN_AREAS, values, strict=True)) for row, values in _parse(_BRAIN_SCORE).items()
}
"""``BRAIN_SCORE[row][area]``, Table 3."""
