"""Residual networks: ResNet20 for CIFAR and the half-width ResNet18 for ImageNet, the networks of the paper."""

from typing import Literal

from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut, which is a strided 1×1 convolution where the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.relu1, self.relu2 = nn.ReLU(inplace=True), nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(f(x) + shortcut(x))."""
        y = self.relu1(self.norm1(self.conv1(x)))
        return self.relu2(self.norm2(self.conv2(y)) + self.shortcut(x))


def _stage(in_channels: int, out_channels: int, *, blocks: int, stride: int) -> nn.Sequential:
    """Stack blocks of one width; the first has the stride."""
    first = ResidualBlock(in_channels, out_channels, stride)
    return nn.Sequential(first, *[ResidualBlock(out_channels, out_channels) for _ in range(blocks - 1)])


def initialise(model: nn.Module) -> None:
    """Draw the filters of every convolution from Kaiming's normal distribution (fan out, ReLU), as in appendix B."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class ResNetCIFAR(nn.Module):
    """A network of a 3×3 stem and three stages of residual blocks with 16, 32 and 64 channels."""

    def __init__(self, num_classes: int, *, blocks: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.stages = nn.Sequential(
            _stage(16, 16, blocks=blocks, stride=1),
            _stage(16, 32, blocks=blocks, stride=2),
            _stage(32, 64, blocks=blocks, stride=2),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(64, num_classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of a batch of images."""
        y = self.stages(self.relu(self.norm1(self.conv1(x))))
        return self.classifier(self.pool(y).flatten(1))


def resnet20(num_classes: int = 10) -> ResNetCIFAR:
    """Build the convolutional ResNet20 of section 5; ``to_locally_connected`` makes it locally connected.

    >>> sum(p.numel() for p in resnet20().parameters())
    272474
    """
    return ResNetCIFAR(num_classes, blocks=3)


def resnet8(num_classes: int = 10) -> ResNetCIFAR:
    """Build the small sibling of `resnet20` with one block per stage: the network of the miniature.

    >>> sum(p.numel() for p in resnet8().parameters())
    78042
    """
    return ResNetCIFAR(num_classes, blocks=1)


class ResNet18(nn.Module):
    """A stem and four stages of two blocks; the first has ``width`` channels, each later one twice as many."""

    def __init__(self, num_classes: int, width: int, stem: Literal["7x7", "3x3"]) -> None:
        super().__init__()
        if stem not in ("7x7", "3x3"):
            raise ValueError(f"`stem` must be '7x7' or '3x3', got {stem!r}")
        size = int(stem[0])
        self.conv1 = nn.Conv2d(3, width, size, stride=2, padding=size // 2, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.Sequential(
            *[_stage(widths[i], widths[i + 1], blocks=2, stride=1 if i == 0 else 2) for i in range(4)]
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(8 * width, num_classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of a batch of images."""
        y = self.maxpool(self.relu(self.norm1(self.conv1(x))))
        return self.classifier(self.pool(self.stages(y)).flatten(1))


def resnet18(num_classes: int = 1000, width: int = 32, stem: Literal["7x7", "3x3"] = "7x7") -> ResNet18:
    """Build the convolutional half-width ResNet18 of section 5 (block widths 32, 64, 128, 256).

    The paper says that all filters are 3×3, but the usual stem is 7×7: both are available. Sleep through the whole
    network needs ``stem="3x3"``, since its input patterns have one period for all layers.

    >>> resnet18(stem="3x3").conv1.kernel_size
    (3, 3)
    """
    return ResNet18(num_classes, width, stem)
