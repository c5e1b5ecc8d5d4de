"""ResNets in their CIFAR form (He et al., 2016): the paper's ResNet20, and ResNet8 for its miniature."""

from torch import Tensor, nn

from sleepconv.models.residual import initialise, stage


class ResNetCIFAR(nn.Module):
    """A 3×3 stem and three stages of residual blocks with 16, 32 and 64 channels."""

    def __init__(self, num_classes: int, *, blocks: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.stages = nn.Sequential(
            stage(16, 16, blocks=blocks, stride=1),
            stage(16, 32, blocks=blocks, stride=2),
            stage(32, 64, blocks=blocks, stride=2),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(64, num_classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        y = self.stages(self.relu(self.norm1(self.conv1(x))))
        return self.classifier(self.pool(y).flatten(1))


def resnet20(num_classes: int = 10) -> ResNetCIFAR:
    """The convolutional ResNet20 of section 5; ``to_locally_connected`` makes it locally connected.

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
