"""A convolution with one filter per grid is the locally connected layer whose filters agree within each grid."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.functional.test_locally_connected import FUNCTIONS, convolutions

from sleepconv.functional import grid_convolution, output_size
from sleepconv.kernels import use_kernel

WEIGHT = torch.randn(3, 3, 4, 2, 3, 3)


def every_neuron(weight, size):
    """The filters of all neurons, from one filter per grid."""
    for axis, n in enumerate(size):
        weight = weight.index_select(axis, torch.arange(n) % weight.shape[axis])
    return weight


@settings(max_examples=60, deadline=None)
@given(case=convolutions(), data=st.data())
def test_equals_the_layer_whose_filters_agree_in_every_grid_however_it_is_computed(case, data):
    axes, batch, (ins, outs), size, kernel, options = case
    space = output_size(size, kernel, **{k: v for k, v in options.items() if k != "groups"})
    spacing = [data.draw(st.integers(1, 4)) for _ in range(axes)]
    x = torch.randn(batch, ins, *size, dtype=torch.float64)
    weight = torch.randn(*spacing, outs, ins // options["groups"], *kernel, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(outs, *data.draw(st.sampled_from([(), space])), dtype=torch.float64)
    expected = FUNCTIONS[axes][0](x, every_neuron(weight, space), bias, **options)
    as_convolutions = grid_convolution(x, weight, bias, **options)
    torch.testing.assert_close(as_convolutions, expected)
    with torch.no_grad():
        torch.testing.assert_close(grid_convolution(x, weight, bias, **options), expected.detach())
        moved = grid_convolution(x, weight, bias, position_major=True, **options)
        torch.testing.assert_close(moved, expected.detach())
    grad = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad(y, weight, grad)[0] for y in (as_convolutions, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("images", [1, 5, 700])
def test_the_native_kernel_computes_what_convolutions_do_for_few_and_many_images(images):
    x = torch.randn(images, 2, 13, 32)
    with torch.no_grad():
        ours = grid_convolution(x, WEIGHT, padding=1)
        with use_kernel("batched"):
            theirs = grid_convolution(x, WEIGHT, padding=1)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_takes_one_image_half_precision_autocast_and_devices_without_memory():
    x = torch.randn(2, 2, 8, 8)
    expected = grid_convolution(x, WEIGHT)
    torch.testing.assert_close(grid_convolution(x[0], WEIGHT), expected[0])
    assert grid_convolution(x.to("meta"), WEIGHT.to("meta")).shape == expected.shape
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = grid_convolution(x, WEIGHT)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0.05, atol=0.2)


def test_compiles_and_exports_as_plain_convolutions():
    class Layer(torch.nn.Module):
        def forward(self, x):
            return grid_convolution(x, WEIGHT, stride=2, padding=1)

    x = torch.randn(2, 2, 9, 9)
    exported = torch.export.export(Layer(), (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert "sleepconv" not in exported.graph_module.code
    more = torch.randn(5, 2, 9, 9)
    torch.testing.assert_close(exported.module()(more), Layer()(more), rtol=1e-5, atol=1e-5)


def test_tensors_that_do_not_fit_are_an_error():
    with pytest.raises(ValueError, match=r"4-, 6- or 8-dimensional weight.*got shape \(4, 2, 3\)"):
        grid_convolution(torch.randn(1, 2, 8), torch.randn(4, 2, 3))
    with pytest.raises(ValueError, match="2 spatial axes"):
        grid_convolution(torch.randn(1, 1, 2, 8, 8), WEIGHT)
    with pytest.raises(ValueError, match="input has 3 channels, but the weight takes 2"):
        grid_convolution(torch.randn(1, 3, 8, 8), WEIGHT)
    with pytest.raises(ValueError, match="smaller than a filter"):
        grid_convolution(torch.randn(1, 2, 2, 2), WEIGHT)
    with pytest.raises(TypeError, match="same dtype"):
        grid_convolution(torch.randn(1, 2, 8, 8).double(), WEIGHT)
