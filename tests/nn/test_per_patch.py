"""The per-patch linear layer, as a function and as a module."""

import copy
import io

import pytest
import torch
from torch import nn

from sleepconv.functional import per_patch_linear
from sleepconv.nn import PerPatchLinear
from sleepconv.sleep import SleepingLayer


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize("bias", [False, "shared", "patch"])
def test_every_patch_meets_its_own_matrix_for_any_number_of_leading_axes(leading, bias):
    layer = PerPatchLinear(4, 6, num_patches=5, bias=bias, dtype=torch.float64)
    z = torch.randn(*leading, 5, 4, dtype=torch.float64)
    y = layer(z)
    assert y.shape == (*leading, 5, 6)
    for patch in range(5):
        own = layer.bias[patch] if bias == "patch" else layer.bias
        torch.testing.assert_close(y[..., patch, :], nn.functional.linear(z[..., patch, :], layer.weight[patch], own))


def test_gradients_agree_with_finite_differences():
    z, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in [(2, 3, 4), (3, 5, 4), (3, 5)]
    )
    torch.autograd.gradcheck(per_patch_linear, (z, weight, bias))


@pytest.mark.parametrize("bias", [True, False])
def test_copies_a_linear_layer_and_goes_back(bias):
    linear = nn.Linear(4, 6, bias=bias).eval()
    linear.weight.requires_grad_(False)
    layer = PerPatchLinear.from_linear(linear, 5)
    z = torch.randn(3, 5, 4)
    torch.testing.assert_close(layer(z), linear(z))
    back = layer.to_linear()
    assert repr(back) == repr(linear)
    for module in (layer, back):
        assert not module.training
        assert not module.weight.requires_grad
    torch.testing.assert_close(back(z), linear(z))


def test_to_linear_has_the_mean_matrix_and_the_mean_bias():
    layer = PerPatchLinear(4, 6, num_patches=5, bias="patch", dtype=torch.float64)
    linear = layer.to_linear()
    assert torch.equal(linear.weight, layer.weight.mean(0))
    assert torch.equal(linear.bias, layer.bias.mean(0))


def test_all_patches_are_on_one_grid_and_the_layer_sleeps():
    layer = PerPatchLinear(4, 6, num_patches=5)
    assert torch.equal(layer.grids, torch.zeros(5, dtype=torch.int64))
    assert isinstance(layer, SleepingLayer)


def test_weights_start_as_in_a_linear_layer_independently_per_patch():
    layer = PerPatchLinear(64, 64, num_patches=32)
    assert layer.weight.abs().max().item() == pytest.approx(1 / 8, rel=1e-3)
    assert layer.weight.std().item() == pytest.approx(nn.Linear(64, 64).weight.std().item(), rel=0.03)
    assert layer.weight.mean(0).std().item() == pytest.approx(layer.weight.std().item() / 32**0.5, rel=0.05)


def test_init_noise_starts_from_one_shared_matrix():
    layer = PerPatchLinear(64, 64, num_patches=32, init_noise=0.1)
    expected = 1 / 8 / 3**0.5
    assert layer.weight.std(0).mean().item() == pytest.approx(0.1 * expected, rel=0.05)
    assert layer.weight.mean(0).std().item() == pytest.approx(expected, rel=0.05)


def test_state_dict_goes_round_and_copies_are_independent():
    layer, other = (PerPatchLinear(4, 6, num_patches=5, bias="patch") for _ in range(2))
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    z = torch.randn(2, 5, 4)
    assert torch.equal(layer(z), other(z))
    clone = copy.deepcopy(layer)
    clone.weight.data.zero_()
    assert layer.weight.any()


@pytest.mark.parametrize("bias", [True, "patch", False])
def test_computes_in_autocasts_dtype_as_a_linear_layer_does(bias):
    layer, z = PerPatchLinear(4, 6, num_patches=5, bias=bias), torch.randn(2, 5, 4)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(z)
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16
    assert layer.weight.grad.dtype == torch.float32
    torch.testing.assert_close(y.float(), layer(z), rtol=0.05, atol=0.05)


def test_compiles_without_a_graph_break_and_exports_with_any_batch():
    layer, z = PerPatchLinear(4, 6, num_patches=5), torch.randn(2, 5, 4)
    torch.testing.assert_close(torch.compile(layer, fullgraph=True)(z), layer(z))
    exported = torch.export.export(layer, (z,), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
    more = torch.randn(7, 5, 4)
    torch.testing.assert_close(exported(more), layer(more))


def test_responses_can_be_viewed():
    layer = PerPatchLinear(4, 6, num_patches=5)
    assert layer(torch.randn(2, 5, 4)).view(2, -1).shape == (2, 30)


def test_repr_says_the_sizes():
    layer = PerPatchLinear(4, 6, num_patches=5, bias="patch")
    assert repr(layer) == "PerPatchLinear(4, 6, num_patches=5, bias=patch)"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_patches": 0}, "`num_patches` must be an int, at least 1, got 0"),
        ({"in_features": 0}, "at least 1"),
        ({"bias": "neuron"}, "`bias` must be one of .* got 'neuron'"),
    ],
)
def test_impossible_layers_are_refused(change, says):
    options = {"in_features": 4, "out_features": 6, "num_patches": 5} | change
    with pytest.raises(ValueError, match=says):
        PerPatchLinear(**options)


@pytest.mark.parametrize("shape", [(2, 4, 4), (2, 5, 3), (4,), (2, 4)])
def test_tokens_of_another_number_or_size_are_refused(shape):
    with pytest.raises(ValueError, match=r"must have shape \(..., 5, 4\), got \(" + str(shape[0])):
        PerPatchLinear(4, 6, num_patches=5)(torch.zeros(shape))


def test_weights_and_biases_of_a_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(patches, out_features, in_features\), got shape \(6, 4\)"):
        per_patch_linear(torch.zeros(5, 4), torch.zeros(6, 4))
    with pytest.raises(ValueError, match=r"bias must have shape \(6,\).*got \(5,\)"):
        per_patch_linear(torch.zeros(5, 4), torch.zeros(5, 6, 4), torch.zeros(5))


def test_only_a_linear_layer_can_be_copied():
    with pytest.raises(TypeError, match="expected a Linear, got Conv1d"):
        PerPatchLinear.from_linear(nn.Conv1d(3, 3, 1), 5)
