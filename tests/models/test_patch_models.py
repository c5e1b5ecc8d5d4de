"""The small networks on patches."""

import pytest
import torch
from torch import nn

from sleepconv.models import mlp_mixer, small_vit


@pytest.mark.parametrize("build", [mlp_mixer, small_vit])
def test_size_width_depth_and_classes_are_the_ones_asked_for(build):
    model = build(num_classes=7, image_size=12, patch_size=3, width=8, depth=3)
    assert model.embedding(torch.randn(2, 3, 12, 12)).shape == (2, 16, 8)
    assert len(model.blocks) == 3
    assert model(torch.randn(2, 3, 12, 12)).shape == (2, 7)


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"expected images of size \(8, 8\), got \(16, 16\)"):
        small_vit(image_size=8, width=16, depth=1)(torch.zeros(1, 3, 16, 16))


def test_without_its_position_embedding_the_transformer_does_not_see_the_order_of_patches_and_with_it_does():
    model = small_vit(image_size=8, width=16, depth=2).double().eval()
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    swapped = images.roll(4, dims=3)
    assert not torch.allclose(model(images), model(swapped))
    nn.init.zeros_(model.embedding[1].position)
    torch.testing.assert_close(model(images), model(swapped))


def test_the_mixer_sees_the_order_of_patches():
    model = mlp_mixer(image_size=8, width=16, depth=1)
    images = torch.randn(2, 3, 8, 8)
    assert not torch.allclose(model(images), model(images.roll(4, dims=3)), atol=1e-4)


@pytest.mark.parametrize("build", [mlp_mixer, small_vit])
def test_learns_a_batch_by_heart(build):
    model = build(image_size=8, width=16, depth=1)
    images, labels = torch.randn(20, 3, 8, 8), torch.arange(20) % 10
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    assert (model(images).argmax(1) == labels).float().mean() > 0.9


def test_patches_that_do_not_tile_and_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="`image_size` .32. must be divisible by `patch_size` .5."):
        mlp_mixer(patch_size=5)
    with pytest.raises(ValueError, match="`width` .64. must be divisible by `heads` .3."):
        small_vit(heads=3)
