"""ImageNet: every row of Tables 2 and 13, the half-width ResNet18.

The rates are those of the appendix, "Final hyperparameters". ImageNet has its own crops, so padding is 0.
"""

from dataclasses import replace

from sleepconv.recipes.registry import named
from sleepconv.training import Run


@named
def imagenet_convolutional() -> Run:
    """Table 2, conv: 63.5 % top-1, 84.7 % top-5."""
    return Run(
        "imagenet",
        "imagenet",
        "convolutional",
        learning_rate=1e-3,
        weight_decay=1e-2,
        network="resnet18",
        padding=0,
        batch_size=256,
    )


@named
def imagenet_local() -> Run:
    """Table 2, LC: 46.7 % top-1, 70.0 % top-5."""
    return replace(imagenet_convolutional(), connectivity="local", learning_rate=5e-4)


@named
def imagenet_sleep_every_1() -> Run:
    """Table 2, LC, weight sharing every 1: 61.7 % top-1, 83.1 % top-5."""
    return replace(imagenet_local(), sleep_every=1, learning_rate=1e-3)


@named
def imagenet_sleep_every_10() -> Run:
    """Table 2, LC, weight sharing every 10: 59.3 % top-1, 81.1 % top-5."""
    return replace(imagenet_local(), sleep_every=10)


@named
def imagenet_sleep_every_100() -> Run:
    """Table 2, LC, weight sharing every 100: 54.5 % top-1, 77.7 % top-5."""
    return replace(imagenet_local(), sleep_every=100)


@named
def imagenet_first_convolutional_local() -> Run:
    """Table 13, LC (1st layer conv): 52.2 % top-1, 75.1 % top-5."""
    return replace(imagenet_local(), connectivity="local_after_first")


@named
def imagenet_first_convolutional_sleep_every_1() -> Run:
    """Table 13, LC (1st layer conv), weight sharing every 1: 63.6 % top-1, 84.5 % top-5."""
    return replace(imagenet_first_convolutional_local(), sleep_every=1)


@named
def imagenet_first_convolutional_sleep_every_10() -> Run:
    """Table 13, LC (1st layer conv), weight sharing every 10: 61.6 % top-1, 83.1 % top-5."""
    return replace(imagenet_first_convolutional_local(), sleep_every=10)


@named
def imagenet_first_convolutional_sleep_every_100() -> Run:
    """Table 13, LC (1st layer conv), weight sharing every 100: 59.1 % top-1, 81.1 % top-5."""
    return replace(imagenet_first_convolutional_local(), sleep_every=100)
