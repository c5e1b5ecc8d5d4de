"""The residual block that both networks are made of: plain convolutional, without biases."""

from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut, which is a strided 1×1 convolution where the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        """relu(f(x) + shortcut(x))."""
        y = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def stage(in_channels: int, out_channels: int, *, blocks: int, stride: int) -> nn.Sequential:
    """Blocks of one width; the first one takes the stride."""
    first = ResidualBlock(in_channels, out_channels, stride)
    return nn.Sequential(first, *[ResidualBlock(out_channels, out_channels) for _ in range(blocks - 1)])


def initialise(model: nn.Module) -> None:
    """Kaiming normal (fan out, ReLU) in every convolution, as in the paper's appendix B."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
