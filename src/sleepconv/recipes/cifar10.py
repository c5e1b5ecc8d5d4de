"""CIFAR-10: every row of Tables 1 (padding 4), 4 (padding 0) and 6 (padding 8).

The rates are those of Tables 11, 10 and 12.
"""

from dataclasses import replace

from sleepconv.recipes.registry import named
from sleepconv.training import Run


@named
def cifar10_convolutional() -> Run:
    """Table 1, conv: 88.3 % top-1. Rates: Table 11."""
    return Run("cifar10", "cifar10", "convolutional", learning_rate=1e-2, weight_decay=1e-4)


@named
def cifar10_local() -> Run:
    """Table 1, LC: 80.9 % top-1. Rates: Table 11."""
    return replace(cifar10_convolutional(), connectivity="local", learning_rate=1e-3)


@named
def cifar10_4_repetitions() -> Run:
    """Table 1, LC - 4 reps: 82.9 % top-1. Rates: Table 11."""
    return replace(cifar10_local(), repetitions=4, weight_decay=1e-2)


@named
def cifar10_8_repetitions() -> Run:
    """Table 1, LC - 8 reps: 83.8 % top-1. Rates: Table 11."""
    return replace(cifar10_local(), repetitions=8, learning_rate=5e-4, weight_decay=1e-2)


@named
def cifar10_16_repetitions() -> Run:
    """Table 1, LC - 16 reps: 85.0 % top-1. Rates: Table 11."""
    return replace(cifar10_local(), repetitions=16, learning_rate=5e-4, weight_decay=1e-2)


@named
def cifar10_sleep_every_1() -> Run:
    """Table 1, LC - ws(1): 87.4 % top-1. Rates: Table 11."""
    return replace(cifar10_local(), sleep_every=1, weight_decay=1e-2)


@named
def cifar10_sleep_every_10() -> Run:
    """Table 1, LC - ws(10): 85.1 % top-1. Rates: Table 11."""
    return replace(cifar10_local(), sleep_every=10, learning_rate=5e-4, weight_decay=1e-2)


@named
def cifar10_sleep_every_100() -> Run:
    """Table 1, LC - ws(100): 82.0 % top-1. Rates: Table 11."""
    return replace(cifar10_local(), sleep_every=100, learning_rate=5e-4, weight_decay=1e-2)


@named
def cifar10_padding0_convolutional() -> Run:
    """Table 4, conv: 84.1 % top-1. Rates: Table 10."""
    return replace(cifar10_convolutional(), padding=0, weight_decay=1e-2)


@named
def cifar10_padding0_local() -> Run:
    """Table 4, LC: 67.2 % top-1. Rates: Table 10."""
    return replace(cifar10_padding0_convolutional(), connectivity="local", learning_rate=1e-3)


@named
def cifar10_padding0_sleep_every_1() -> Run:
    """Table 4, LC - ws(1): 74.8 % top-1. Rates: Table 10."""
    return replace(cifar10_padding0_local(), sleep_every=1)


@named
def cifar10_padding0_sleep_every_10() -> Run:
    """Table 4, LC - ws(10): 75.9 % top-1. Rates: Table 10."""
    return replace(cifar10_padding0_local(), sleep_every=10, learning_rate=5e-4)


@named
def cifar10_padding0_sleep_every_100() -> Run:
    """Table 4, LC - ws(100): 75.4 % top-1. Rates: Table 10."""
    return replace(cifar10_padding0_local(), sleep_every=100, learning_rate=1e-4)


@named
def cifar10_padding8_convolutional() -> Run:
    """Table 6, conv: 88.7 % top-1. Rates: Table 12."""
    return replace(cifar10_convolutional(), padding=8, weight_decay=1e-2)


@named
def cifar10_padding8_local() -> Run:
    """Table 6, LC: 80.7 % top-1. Rates: Table 12."""
    return replace(cifar10_padding8_convolutional(), connectivity="local", learning_rate=1e-3)


@named
def cifar10_padding8_4_repetitions() -> Run:
    """Table 6, LC - 4 reps: 82.8 % top-1. Rates: Table 12."""
    return replace(cifar10_padding8_local(), repetitions=4, learning_rate=5e-4)


@named
def cifar10_padding8_8_repetitions() -> Run:
    """Table 6, LC - 8 reps: 83.6 % top-1. Rates: Table 12."""
    return replace(cifar10_padding8_local(), repetitions=8)


@named
def cifar10_padding8_16_repetitions() -> Run:
    """Table 6, LC - 16 reps: 85.0 % top-1. Rates: Table 12."""
    return replace(cifar10_padding8_local(), repetitions=16, learning_rate=5e-4, weight_decay=1e-4)


@named
def cifar10_padding8_sleep_every_1() -> Run:
    """Table 6, LC - ws(1): 87.8 % top-1. Rates: Table 12."""
    return replace(cifar10_padding8_local(), sleep_every=1, weight_decay=1e-4)


@named
def cifar10_padding8_sleep_every_10() -> Run:
    """Table 6, LC - ws(10): 84.3 % top-1. Rates: Table 12."""
    return replace(cifar10_padding8_local(), sleep_every=10, learning_rate=5e-4)


@named
def cifar10_padding8_sleep_every_100() -> Run:
    """Table 6, LC - ws(100): 79.5 % top-1. Rates: Table 12."""
    return replace(cifar10_padding8_local(), sleep_every=100, learning_rate=5e-4)
