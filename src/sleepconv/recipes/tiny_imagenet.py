"""TinyImageNet: every row of Tables 1 (padding 4), 4 (padding 0) and 6 (padding 8).

The rates are those of Tables 11, 10 and 12.
"""

from dataclasses import replace

from sleepconv.recipes.registry import named
from sleepconv.training import Run


@named
def tiny_imagenet_convolutional() -> Run:
    """Table 1, conv: 38.6 % top-1, 65.1 % top-5. Rates: Table 11."""
    return Run("tiny_imagenet", "tiny-imagenet", "convolutional", learning_rate=5e-3, weight_decay=1e-4)


@named
def tiny_imagenet_local() -> Run:
    """Table 1, LC: 29.6 % top-1, 52.7 % top-5. Rates: Table 11."""
    return replace(tiny_imagenet_convolutional(), connectivity="local", learning_rate=5e-4)


@named
def tiny_imagenet_4_repetitions() -> Run:
    """Table 1, LC - 4 reps: 31.9 % top-1, 54.9 % top-5. Rates: Table 11."""
    return replace(tiny_imagenet_local(), repetitions=4, weight_decay=1e-2)


@named
def tiny_imagenet_8_repetitions() -> Run:
    """Table 1, LC - 8 reps: 33.0 % top-1, 55.6 % top-5. Rates: Table 11."""
    return replace(tiny_imagenet_local(), repetitions=8, weight_decay=1e-2)


@named
def tiny_imagenet_16_repetitions() -> Run:
    """Table 1, LC - 16 reps: 34.0 % top-1, 56.2 % top-5. Rates: Table 11."""
    return replace(tiny_imagenet_local(), repetitions=16, weight_decay=1e-2)


@named
def tiny_imagenet_sleep_every_1() -> Run:
    """Table 1, LC - ws(1): 41.6 % top-1, 66.1 % top-5. Rates: Table 11."""
    return replace(tiny_imagenet_local(), sleep_every=1, learning_rate=1e-3, weight_decay=1e-2)


@named
def tiny_imagenet_sleep_every_10() -> Run:
    """Table 1, LC - ws(10): 37.4 % top-1, 61.8 % top-5. Rates: Table 11."""
    return replace(tiny_imagenet_local(), sleep_every=10, learning_rate=1e-3)


@named
def tiny_imagenet_sleep_every_100() -> Run:
    """Table 1, LC - ws(100): 37.1 % top-1, 62.8 % top-5. Rates: Table 11."""
    return replace(tiny_imagenet_local(), sleep_every=100, learning_rate=1e-3, weight_decay=1e-2)


@named
def tiny_imagenet_padding0_convolutional() -> Run:
    """Table 4, conv: 26.0 % top-1, 51.2 % top-5. Rates: Table 10."""
    return replace(tiny_imagenet_convolutional(), padding=0, weight_decay=1e-2)


@named
def tiny_imagenet_padding0_local() -> Run:
    """Table 4, LC: 12.0 % top-1, 30.4 % top-5. Rates: Table 10."""
    return replace(tiny_imagenet_padding0_convolutional(), connectivity="local", learning_rate=1e-3, weight_decay=1e-4)


@named
def tiny_imagenet_padding0_sleep_every_1() -> Run:
    """Table 4, LC - ws(1): 24.9 % top-1, 49.1 % top-5. Rates: Table 10."""
    return replace(tiny_imagenet_padding0_local(), sleep_every=1)


@named
def tiny_imagenet_padding0_sleep_every_10() -> Run:
    """Table 4, LC - ws(10): 28.1 % top-1, 52.5 % top-5. Rates: Table 10."""
    return replace(tiny_imagenet_padding0_local(), sleep_every=10, learning_rate=5e-4, weight_decay=1e-2)


@named
def tiny_imagenet_padding0_sleep_every_100() -> Run:
    """Table 4, LC - ws(100): 27.4 % top-1, 51.9 % top-5. Rates: Table 10."""
    return replace(tiny_imagenet_padding0_local(), sleep_every=100)


@named
def tiny_imagenet_padding8_convolutional() -> Run:
    """Table 6, conv: 42.6 % top-1, 68.7 % top-5. Rates: Table 12."""
    return replace(tiny_imagenet_convolutional(), padding=8, weight_decay=1e-2)


@named
def tiny_imagenet_padding8_local() -> Run:
    """Table 6, LC: 31.9 % top-1, 55.4 % top-5. Rates: Table 12."""
    return replace(tiny_imagenet_padding8_convolutional(), connectivity="local", learning_rate=1e-3)


@named
def tiny_imagenet_padding8_4_repetitions() -> Run:
    """Table 6, LC - 4 reps: 35.5 % top-1, 58.6 % top-5. Rates: Table 12."""
    return replace(tiny_imagenet_padding8_local(), repetitions=4, learning_rate=5e-4)


@named
def tiny_imagenet_padding8_8_repetitions() -> Run:
    """Table 6, LC - 8 reps: 35.8 % top-1, 59.0 % top-5. Rates: Table 12."""
    return replace(tiny_imagenet_padding8_local(), repetitions=8, learning_rate=5e-4, weight_decay=1e-4)


@named
def tiny_imagenet_padding8_16_repetitions() -> Run:
    """Table 6, LC - 16 reps: 37.9 % top-1, 60.3 % top-5. Rates: Table 12."""
    return replace(tiny_imagenet_padding8_local(), repetitions=16, learning_rate=5e-4)


@named
def tiny_imagenet_padding8_sleep_every_1() -> Run:
    """Table 6, LC - ws(1): 43.6 % top-1, 67.9 % top-5. Rates: Table 12."""
    return replace(tiny_imagenet_padding8_local(), sleep_every=1)


@named
def tiny_imagenet_padding8_sleep_every_10() -> Run:
    """Table 6, LC - ws(10): 39.6 % top-1, 64.5 % top-5. Rates: Table 12."""
    return replace(tiny_imagenet_padding8_local(), sleep_every=10, weight_decay=1e-4)


@named
def tiny_imagenet_padding8_sleep_every_100() -> Run:
    """Table 6, LC - ws(100): 39.2 % top-1, 64.8 % top-5. Rates: Table 12."""
    return replace(tiny_imagenet_padding8_local(), sleep_every=100, weight_decay=1e-4)
