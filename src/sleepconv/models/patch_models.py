"""Small networks on patches: an MLP-Mixer (Tolstikhin et al. 2021) and a vision transformer (Dosovitskiy et al. 2020).

With shared weights, as published; ``to_locally_connected`` removes the sharing from the patch embedding and
``to_per_patch`` from all the rest.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sleepconv.functional.sizes import check_divisible, check_int


class PatchEmbedding(nn.Module):
    """A linear embedding of image patches: (batch, 3, height, width) to (batch, patches, width)."""

    def __init__(self, image_size: int, patch_size: int, width: int) -> None:
        super().__init__()
        check_divisible("image_size", check_int("image_size", image_size), "patch_size", patch_size)
        self.image_size = (image_size, image_size)
        self.num_patches = (image_size // patch_size) ** 2
        self.projection = nn.Conv2d(3, width, patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """Return the tokens of a batch of images."""
        if tuple(images.shape[-2:]) != self.image_size:
            raise ValueError(f"expected images of size {self.image_size}, got {tuple(images.shape[-2:])}")
        return self.projection(images).flatten(2).mT


class MLP(nn.Sequential):
    """Two linear layers with a GELU between them, on the last axis."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class MixerBlock(nn.Module):
    """An MLP over patches, shared by the channels, then one over channels, shared by the patches."""

    def __init__(self, num_patches: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.token_mixing = MLP(num_patches, num_patches * 2)
        self.channel_mixing = MLP(width, width * 4)

    def forward(self, z: Tensor) -> Tensor:
        """Map (batch, patches, width) to the same shape."""
        z = z + self.token_mixing(self.norm1(z).mT).mT
        return z + self.channel_mixing(self.norm2(z))


class TransformerBlock(nn.Module):
    """Self-attention, then an MLP on each token; both after a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp = MLP(width, width * 4)

    def forward(self, z: Tensor) -> Tensor:
        """Map (batch, patches, width) to the same shape."""
        z = z + self._attend(self.norm1(z))
        return z + self.mlp(self.norm2(z))

    def _attend(self, z: Tensor) -> Tensor:
        query, key, value = self.qkv(z).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.projection(mixed.transpose(1, 2).flatten(2))


class PatchModel(nn.Module):
    """A network of an embedding, blocks, a layer norm, and a linear classifier on the mean over patches."""

    def __init__(self, embedding: nn.Module, blocks: list[nn.Module], width: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the class scores of a batch of images."""
        return self.classifier(self.norm(self.blocks(self.embedding(images))).mean(1))


class PositionEmbedding(nn.Module):
    """A learned vector per position, added to each token."""

    def __init__(self, num_patches: int, width: int) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.empty(num_patches, width).normal_(0, 0.02))

    def forward(self, z: Tensor) -> Tensor:
        """Map (batch, patches, width) to the same shape."""
        return z + self.position


def mlp_mixer(
    num_classes: int = 10, image_size: int = 32, patch_size: int = 4, width: int = 64, depth: int = 4
) -> PatchModel:
    """Build an MLP-Mixer for small images.

    >>> mlp_mixer()(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    embedding = PatchEmbedding(image_size, patch_size, width)
    blocks: list[nn.Module] = [MixerBlock(embedding.num_patches, width) for _ in range(depth)]
    return PatchModel(embedding, blocks, width, num_classes)


def small_vit(
    num_classes: int = 10, image_size: int = 32, patch_size: int = 4, width: int = 64, depth: int = 4, heads: int = 4
) -> PatchModel:
    """Build a vision transformer for small images; it averages over the patches and has no class token.

    >>> small_vit()(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    check_divisible("width", width, "heads", heads)
    patches = PatchEmbedding(image_size, patch_size, width)
    embedding = nn.Sequential(patches, PositionEmbedding(patches.num_patches, width))
    blocks: list[nn.Module] = [TransformerBlock(width, heads) for _ in range(depth)]
    return PatchModel(embedding, blocks, width, num_classes)
