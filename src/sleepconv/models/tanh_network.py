"""The network of Bartunov et al. (2018) for CIFAR-10: three convolutions without pooling or normalisation."""

from torch import Tensor, nn

_SIZE = 8  # of the last convolution's responses to a 32×32 image


class TanhNetwork(nn.Module):
    """A network of 5×5/64 and 5×5/128 convolutions with stride 2, 3×3/256, 1024 units and tanh."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 64, 5, stride=2, padding=2),
            nn.Tanh(),
            nn.Conv2d(64, 128, 5, stride=2, padding=2),
            nn.Tanh(),
            nn.Conv2d(128, 256, 3, padding=1),
            nn.Tanh(),
        )
        self.hidden = nn.Linear(256 * _SIZE**2, 1024)
        self.classifier = nn.Linear(1024, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of a batch of 32×32 images."""
        return self.classifier(self.hidden(self.layers(x).flatten(1)).tanh())


def tanh_network(num_classes: int = 10) -> TanhNetwork:
    """Build the convolutional twin of the locally connected network of Bartunov et al. (2018) for CIFAR-10.

    They tested with it how well learning without weight transport does; ``to_locally_connected`` makes it theirs. The
    weights are PyTorch's defaults.

    >>> sum(p.numel() for p in tanh_network().parameters())
    17293450
    """
    return TanhNetwork(num_classes)
