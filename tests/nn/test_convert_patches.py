"""Conversion of models on tokens."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from sleepconv import (
    NothingConvertedWarning,
    to_convolutional,
    to_locally_connected,
    to_per_patch,
)
from sleepconv.models import mlp_mixer, small_vit
from sleepconv.nn import PerPatchLinear


def per_patch_layers(model):
    return {name: module.num_patches for name, module in model.named_modules() if isinstance(module, PerPatchLinear)}


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(5)
        self.dropout = nn.Dropout()
        self.second = nn.Linear(8, 8, bias=False)
        self.head = nn.Linear(8, 3)

    def forward(self, z):
        return self.head(self.second(self.dropout(self.norm(self.first(z)))).mean(1))


@pytest.fixture
def z():
    return torch.randn(2, 5, 4)


@pytest.mark.parametrize("build", [mlp_mixer, small_vit])
def test_a_copied_network_gives_the_shared_networks_logits_and_its_gradients_sum_to_the_shared_ones(build):
    shared = build(image_size=8, width=16, depth=2).double()
    images = torch.randn(3, 3, 8, 8, dtype=torch.float64)
    local = to_per_patch(shared, images[:1], copy_weights=True)
    torch.testing.assert_close(local(images), shared(images))
    for model in (shared, local):
        model(images).square().sum().backward()
    ours = dict(local.named_parameters())
    for name, parameter in shared.named_parameters():
        grad = ours[name].grad if ours[name].dim() == parameter.dim() else ours[name].grad.sum(0)
        torch.testing.assert_close(grad, parameter.grad)


def test_layers_on_tokens_are_converted_and_those_on_features_stay(z):
    assert per_patch_layers(to_per_patch(Tokens(), z)) == {"first": 5, "second": 5}


def test_token_mixing_shares_over_channels_and_channel_mixing_over_patches():
    layers = per_patch_layers(to_per_patch(mlp_mixer(image_size=8, width=16, depth=1), torch.randn(1, 3, 8, 8)))
    assert layers == {
        "blocks.0.token_mixing.0": 16,
        "blocks.0.token_mixing.2": 16,
        "blocks.0.channel_mixing.0": 4,
        "blocks.0.channel_mixing.2": 4,
    }


def test_the_original_its_statistics_its_mode_and_the_random_state_stay_as_they_were(z):
    model = Tokens().train()
    model.norm.eval()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    local = to_per_patch(model, z, copy_weights=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    assert not per_patch_layers(model)
    assert local.training
    assert not local.norm.training
    assert local.norm.num_batches_tracked == 0
    assert local.state_dict().keys() == model.state_dict().keys()


def test_fresh_weights_differ_between_patches_and_copied_ones_do_not(z):
    fresh, copied = (to_per_patch(Tokens(), z, copy_weights=c).first.weight for c in (False, True))
    assert not torch.equal(fresh[0], fresh[1])
    assert torch.equal(copied[0], copied[1])


def test_include_and_exclude_choose_layers_and_an_unknown_name_is_refused(z):
    assert per_patch_layers(to_per_patch(Tokens(), z, include=["first"])) == {"first": 5}
    assert per_patch_layers(to_per_patch(Tokens(), z, exclude=["first"])) == {"second": 5}
    with pytest.raises(ValueError, match="no module 'frist'; the layers to choose from are: first, second, head"):
        to_per_patch(Tokens(), z, exclude=["frist"])


def test_a_bare_linear_layer_and_an_in_place_conversion(z):
    assert isinstance(to_per_patch(nn.Linear(4, 6), z), PerPatchLinear)
    model = Tokens()
    assert to_per_patch(model, z, inplace=True) is model
    assert per_patch_layers(model)


def test_a_layer_used_with_different_numbers_of_patches_is_named(z):
    class Pooling(nn.Module):
        def __init__(self, pool):
            super().__init__()
            self.linear, self.pool = nn.Linear(4, 4), pool

        def forward(self, z):
            return self.linear(self.pool(self.linear(z)))

    with pytest.raises(ValueError, match="^linear cannot become a per-patch layer.* 3 patches and 5 patches"):
        to_per_patch(Pooling(lambda z: z[:, :3]), z)
    with pytest.raises(ValueError, match="^linear cannot.* no patches and 5 patches"):
        to_per_patch(Pooling(lambda z: z.mean(1)), z)
    local = to_per_patch(Pooling(nn.Identity()), z)
    assert per_patch_layers(local) == {"linear": 5}


def test_tied_parametrized_overridden_and_directly_used_layers_are_refused_by_name(z):
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match="0 cannot.*tied"):
        to_per_patch(tied, z)
    with pytest.raises(ValueError, match="0 cannot.*parametrized"):
        to_per_patch(nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 4))), z)

    class Standardised(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight - self.weight.mean())

    with pytest.raises(ValueError, match="0 cannot.*Standardised overrides how a "):
        to_per_patch(nn.Sequential(Standardised(4, 4)), z)

    class Direct(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, z):
            return F.linear(self.linear(z), self.linear.weight)

    with pytest.raises(ValueError, match="linear cannot.*used directly"):
        to_per_patch(Direct(), z)


def test_a_layer_that_the_sample_does_not_reach_is_named(z):
    model = Tokens()
    model.unused = nn.Linear(3, 3)
    with pytest.warns(UserWarning, match="not reached.*unused"):
        to_per_patch(model, z)


def test_nothing_to_convert_is_said(z):
    with pytest.warns(NothingConvertedWarning):
        to_per_patch(nn.Linear(4, 4), torch.randn(2, 4))
    with pytest.warns(NothingConvertedWarning):
        to_per_patch(Tokens(), z, include=["head"])


@pytest.mark.parametrize("training", [False, True])
def test_attention_with_weights_of_its_own_is_left_alone_and_named_once(training):
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.0, batch_first=True).train(training)
    z = torch.randn(2, 5, 8)
    with pytest.warns(UserWarning, match="self_attn") as caught:
        local = to_per_patch(layer, z, copy_weights=True)
    assert [str(w.message) for w in caught] == [
        "not converted, since nn.MultiheadAttention uses its weights directly (write its projections as nn.Linear "
        "layers): self_attn"
    ]
    assert per_patch_layers(local) == {"linear1": 5, "linear2": 5}
    for mode in (False, True):
        with torch.inference_mode():
            torch.testing.assert_close(local.train(mode)(z), layer.train(mode)(z))


def test_a_model_that_views_its_responses_still_works(z):
    class Viewing(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 6)

        def forward(self, z):
            return self.linear(z).view(z.shape[0], -1)

    model = Viewing()
    torch.testing.assert_close(to_per_patch(model, z, copy_weights=True)(z), model(z))


def test_forward_hooks_move_to_the_new_layer(z):
    model, seen = Tokens(), []
    model.first.register_forward_hook(lambda module, inputs, output: seen.append(type(module)))
    to_per_patch(model, z)(z)
    assert seen[-1] is PerPatchLinear


@pytest.mark.parametrize("build", [mlp_mixer, small_vit])
def test_to_convolutional_goes_back_from_patches_and_from_the_embedding(build):
    model, images = build(image_size=8, width=16, depth=1), torch.randn(2, 3, 8, 8)
    local = to_per_patch(to_locally_connected(model, images, copy_weights=True), images, copy_weights=True)
    back = to_convolutional(local)
    assert repr(back) == repr(model)
    torch.testing.assert_close(back(images), model(images))


def test_a_converted_network_compiles_as_one_graph():
    images = torch.randn(2, 3, 8, 8)
    local = to_per_patch(small_vit(image_size=8, width=16, depth=1), images)
    torch.testing.assert_close(torch.compile(local, fullgraph=True, backend="aot_eager")(images), local(images))


def test_wrapped_models_are_refused(z):
    with pytest.raises(TypeError, match="before it becomes a DataParallel"):
        to_per_patch(nn.DataParallel(Tokens()), z)


def test_lazily_initialised_linear_layers_are_refused_by_name():
    with pytest.raises(ValueError, match=r"the model itself \(LazyLinear\).*model\(sample\)"):
        to_per_patch(nn.LazyLinear(3), torch.randn(2, 5, 4))
