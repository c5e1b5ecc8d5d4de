"""ResNet18 at half width, the paper's network for ImageNet."""

from typing import Literal

from torch import Tensor, nn

from sleepconv.models.residual import initialise, stage


class ResNet18(nn.Module):
    """A stem and four stages of two blocks; ``width`` channels in the first stage, doubled in each further one."""

    def __init__(self, num_classes: int, width: int, stem: Literal["7x7", "3x3"]) -> None:
        super().__init__()
        if stem not in ("7x7", "3x3"):
            raise ValueError(f'stem is "7x7" or "3x3", not {stem!r}')
        size = int(stem[0])
        self.conv1 = nn.Conv2d(3, width, size, stride=2, padding=size // 2, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.Sequential(
            *[stage(widths[i], widths[i + 1], blocks=2, stride=1 if i == 0 else 2) for i in range(4)]
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(8 * width, num_classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        y = self.maxpool(self.relu(self.norm1(self.conv1(x))))
        return self.classifier(self.pool(self.stages(y)).flatten(1))


def resnet18(num_classes: int = 1000, width: int = 32, stem: Literal["7x7", "3x3"] = "7x7") -> ResNet18:
    """The convolutional half-width ResNet18 of section 5 (block widths 32, 64, 128, 256).

    The text says that all filters are 3×3, the usual stem is 7×7: both are here. The layer-by-layer sleep needs
    ``stem="3x3"``, since its patterns have one period for the whole network.

    >>> resnet18(stem="3x3").conv1.kernel_size
    (3, 3)
    """
    return ResNet18(num_classes, width, stem)
