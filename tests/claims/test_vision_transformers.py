"""Appendix A.4: dynamic weight sharing serves vision transformers and MLPs as well."""

import copy

import pytest
import torch

from sleepconv import to_locally_connected, to_per_patch
from sleepconv.functional import weight_snr
from sleepconv.models import mlp_mixer, small_vit
from sleepconv.sleep import Instant, sleeping_layers


def timm_vit(*, image_size, width, depth):
    models = pytest.importorskip("timm.models.vision_transformer")
    return models.VisionTransformer(
        img_size=image_size, patch_size=4, embed_dim=width, depth=depth, num_heads=2, num_classes=10
    )


MODELS = pytest.mark.parametrize("build", [mlp_mixer, small_vit, timm_vit])


def shared_and_without_sharing(build, *, copy_weights):
    shared = build(image_size=8, width=16, depth=2).double()
    images = torch.randn(3, 3, 8, 8, dtype=torch.float64)
    local = to_locally_connected(shared, images, copy_weights=copy_weights)
    return shared, to_per_patch(local, images, copy_weights=copy_weights), images


def mean_weights(local, shared):
    """The state of ``shared`` in which every weight is the mean over the positions of ``local``."""
    state = shared.state_dict()
    extra = {name: value.dim() - state[name].dim() for name, value in local.state_dict().items()}
    return {n: value.mean(tuple(range(extra[n]))) if extra[n] else value for n, value in local.state_dict().items()}


@MODELS
def test_after_sleep_the_network_computes_what_the_shared_one_with_the_mean_weights_computes(build):
    shared, local, images = shared_and_without_sharing(build, copy_weights=False)
    shared.load_state_dict(mean_weights(local, shared))
    awake = local(images)
    Instant()(local)
    torch.testing.assert_close(local(images), shared(images))
    assert not torch.allclose(awake, local(images))


@MODELS
def test_a_converted_copied_network_is_a_fixed_point_of_sleep(build):
    _, local, _ = shared_and_without_sharing(build, copy_weights=True)
    before = copy.deepcopy(local.state_dict())
    Instant()(local)
    for name, value in local.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=1e-12, atol=1e-15)


@MODELS
def test_sleep_after_a_training_step_equals_the_step_of_the_shared_network_at_n_times_smaller_a_rate(build):
    shared, local, images = shared_and_without_sharing(build, copy_weights=True)
    layers = sleeping_layers(local)
    for model in (shared, local):
        model(images).square().sum().backward()
    with torch.no_grad():
        for name, layer in layers.items():
            layer.weight -= 0.1 * layer.weight.grad
            weight = shared.get_submodule(name).weight
            weight -= 0.1 / layer.grids.numel() * weight.grad
    Instant()(local)
    torch.testing.assert_close(local(images), shared(images))


@MODELS
def test_all_patches_of_every_layer_form_one_grid_and_agree_after_sleep(build):
    _, local, _ = shared_and_without_sharing(build, copy_weights=False)
    layers = sleeping_layers(local)
    assert len(layers) == 1 + 2 * 4
    Instant()(local)
    for layer in layers.values():
        assert layer.grids.unique().numel() == 1
        assert weight_snr(layer.weight, layer.grids) == torch.inf
