"""A network of three layers: the smallest in which sleep carries what was learned to positions never seen."""

from torch import Tensor, nn

from sleepconv.models.resnets import initialise

_STRIDES = (1, 2, 2)


class ThreeLayers(nn.Module):
    """A network of 3×3 convolutions with strides 1, 2 and 2 and 16, 32 and 64 channels, and global average pooling."""

    def __init__(self, num_classes: int, in_channels: int, width: int) -> None:
        super().__init__()
        widths = (in_channels, width, 2 * width, 4 * width)
        self.layers = nn.Sequential(
            *[
                _layer(before, after, stride)
                for before, after, stride in zip(widths, widths[1:], _STRIDES, strict=False)
            ]
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(widths[-1], num_classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of a batch of images."""
        return self.classifier(self.pool(self.layers(x)).flatten(1))


def three_layers(num_classes: int = 10, *, in_channels: int = 1, width: int = 16) -> ThreeLayers:
    """Build the network of ``sleepconv demo``; ``to_locally_connected`` makes it locally connected.

    The grids of its last layer take every third neuron, and neighbouring neurons there are 2 · 2 pixels apart: after a
    sleep the network responds identically to images that are shifted by 3 · 4 = 12 pixels.

    >>> sum(p.numel() for p in three_layers().parameters())
    24058
    """
    return ThreeLayers(num_classes, in_channels, width)


def _layer(in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    )
