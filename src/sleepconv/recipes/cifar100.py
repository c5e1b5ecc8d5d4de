"""CIFAR-100: every row of Tables 1 (padding 4), 4 (padding 0) and 6 (padding 8).

The rates are those of Tables 11, 10 and 12.
"""

from dataclasses import replace

from sleepconv.recipes.registry import named
from sleepconv.training import Run


@named
def cifar100_convolutional() -> Run:
    """Table 1, conv: 59.2 % top-1, 84.9 % top-5. Rates: Table 11."""
    return Run("cifar100", "cifar100", "convolutional", learning_rate=1e-2, weight_decay=1e-2)


@named
def cifar100_local() -> Run:
    """Table 1, LC: 49.8 % top-1, 75.5 % top-5. Rates: Table 11."""
    return replace(cifar100_convolutional(), connectivity="local", learning_rate=5e-4)


@named
def cifar100_4_repetitions() -> Run:
    """Table 1, LC - 4 reps: 52.1 % top-1, 76.4 % top-5. Rates: Table 11."""
    return replace(cifar100_local(), repetitions=4, learning_rate=1e-3)


@named
def cifar100_8_repetitions() -> Run:
    """Table 1, LC - 8 reps: 54.3 % top-1, 77.9 % top-5. Rates: Table 11."""
    return replace(cifar100_local(), repetitions=8, weight_decay=1e-4)


@named
def cifar100_16_repetitions() -> Run:
    """Table 1, LC - 16 reps: 55.9 % top-1, 78.8 % top-5. Rates: Table 11."""
    return replace(cifar100_local(), repetitions=16)


@named
def cifar100_sleep_every_1() -> Run:
    """Table 1, LC - ws(1): 58.7 % top-1, 83.4 % top-5. Rates: Table 11."""
    return replace(cifar100_local(), sleep_every=1, learning_rate=1e-3, weight_decay=1e-4)


@named
def cifar100_sleep_every_10() -> Run:
    """Table 1, LC - ws(10): 55.7 % top-1, 80.9 % top-5. Rates: Table 11."""
    return replace(cifar100_local(), sleep_every=10)


@named
def cifar100_sleep_every_100() -> Run:
    """Table 1, LC - ws(100): 52.8 % top-1, 80.1 % top-5. Rates: Table 11."""
    return replace(cifar100_local(), sleep_every=100)


@named
def cifar100_padding0_convolutional() -> Run:
    """Table 4, conv: 49.5 % top-1, 78.2 % top-5. Rates: Table 10."""
    return replace(cifar100_convolutional(), padding=0)


@named
def cifar100_padding0_local() -> Run:
    """Table 4, LC: 34.9 % top-1, 62.2 % top-5. Rates: Table 10."""
    return replace(cifar100_padding0_convolutional(), connectivity="local", learning_rate=1e-3)


@named
def cifar100_padding0_sleep_every_1() -> Run:
    """Table 4, LC - ws(1): 41.8 % top-1, 70.1 % top-5. Rates: Table 10."""
    return replace(cifar100_padding0_local(), sleep_every=1)


@named
def cifar100_padding0_sleep_every_10() -> Run:
    """Table 4, LC - ws(10): 44.4 % top-1, 72.0 % top-5. Rates: Table 10."""
    return replace(cifar100_padding0_local(), sleep_every=10, learning_rate=5e-4, weight_decay=1e-4)


@named
def cifar100_padding0_sleep_every_100() -> Run:
    """Table 4, LC - ws(100): 43.4 % top-1, 71.9 % top-5. Rates: Table 10."""
    return replace(cifar100_padding0_local(), sleep_every=100, learning_rate=1e-4)


@named
def cifar100_padding8_convolutional() -> Run:
    """Table 6, conv: 59.6 % top-1, 85.4 % top-5. Rates: Table 12."""
    return replace(cifar100_convolutional(), padding=8)


@named
def cifar100_padding8_local() -> Run:
    """Table 6, LC: 47.7 % top-1, 74.8 % top-5. Rates: Table 12."""
    return replace(cifar100_padding8_convolutional(), connectivity="local", learning_rate=5e-4, weight_decay=1e-4)


@named
def cifar100_padding8_4_repetitions() -> Run:
    """Table 6, LC - 4 reps: 50.6 % top-1, 76.2 % top-5. Rates: Table 12."""
    return replace(cifar100_padding8_local(), repetitions=4, learning_rate=1e-3)


@named
def cifar100_padding8_8_repetitions() -> Run:
    """Table 6, LC - 8 reps: 53.0 % top-1, 77.4 % top-5. Rates: Table 12."""
    return replace(cifar100_padding8_local(), repetitions=8)


@named
def cifar100_padding8_16_repetitions() -> Run:
    """Table 6, LC - 16 reps: 55.6 % top-1, 78.4 % top-5. Rates: Table 12."""
    return replace(cifar100_padding8_local(), repetitions=16, weight_decay=1e-2)


@named
def cifar100_padding8_sleep_every_1() -> Run:
    """Table 6, LC - ws(1): 59.2 % top-1, 84.0 % top-5. Rates: Table 12."""
    return replace(cifar100_padding8_local(), sleep_every=1, learning_rate=1e-3, weight_decay=1e-2)


@named
def cifar100_padding8_sleep_every_10() -> Run:
    """Table 6, LC - ws(10): 53.7 % top-1, 80.4 % top-5. Rates: Table 12."""
    return replace(cifar100_padding8_local(), sleep_every=10)


@named
def cifar100_padding8_sleep_every_100() -> Run:
    """Table 6, LC - ws(100): 50.0 % top-1, 78.6 % top-5. Rates: Table 12."""
    return replace(cifar100_padding8_local(), sleep_every=100)
