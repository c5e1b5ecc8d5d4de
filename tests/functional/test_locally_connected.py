"""The layer as a function: a convolution when all filters agree, differentiable, and clear about bad input."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import library

from sleepconv.functional import (
    locally_connected1d,
    locally_connected2d,
    locally_connected3d,
    output_size,
)
from sleepconv.kernels import KERNELS, triton, use_kernel

HERE = [name for name in KERNELS if name != "triton" or not triton.unavailable()]
FUNCTIONS = {
    1: (locally_connected1d, F.conv1d),
    2: (locally_connected2d, F.conv2d),
    3: (locally_connected3d, F.conv3d),
}


@st.composite
def convolutions(draw):
    axes = draw(st.integers(1, 3))

    def sizes(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(axes))

    groups = draw(st.integers(1, 3))
    kernel, dilation = sizes(1, 4), sizes(1, 2)
    padding = draw(st.sampled_from(["same", "valid", "numbers"]))
    stride = (1,) * axes if padding == "same" else sizes(1, 3)
    padding = sizes(0, 2) if padding == "numbers" else padding
    # Never smaller than the dilated filter.
    size = tuple(d * (k - 1) + 1 + draw(st.integers(0, 4)) for k, d in zip(kernel, dilation, strict=True))
    channels = draw(st.integers(1, 5)) * groups, draw(st.integers(1, 9)) * groups
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return axes, draw(st.integers(1, 5)), channels, size, kernel, options


@settings(max_examples=150, deadline=None)
@given(case=convolutions())
def test_equals_convolution_when_all_filters_agree(case):
    axes, batch, (ins, outs), size, kernel, options = case
    local, convolution = FUNCTIONS[axes]
    x = torch.randn(batch, ins, *size, dtype=torch.float64, requires_grad=True)
    shared = torch.randn(outs, ins // options["groups"], *kernel, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(outs, dtype=torch.float64, requires_grad=True)
    space = output_size(size, kernel, **{k: v for k, v in options.items() if k != "groups"})
    weight = shared.expand(*space, *shared.shape)
    ours, theirs = local(x, weight, bias, **options), convolution(x, shared, bias, **options)
    torch.testing.assert_close(ours, theirs)
    grad = torch.randn_like(theirs)
    for mine, expected in zip(
        torch.autograd.grad(ours, (x, shared, bias), grad),
        torch.autograd.grad(theirs, (x, shared, bias), grad),
        strict=True,
    ):
        torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("kernel", HERE)
def test_every_filter_acts_at_its_own_place(kernel):
    x = torch.arange(5.0).view(1, 1, 1, 5)
    weight = torch.tensor([1.0, 10.0, 100.0]).view(1, 3, 1, 1, 1, 1) * torch.ones(1, 3, 1, 1, 1, 3)
    with use_kernel(kernel):
        assert locally_connected2d(x, weight).flatten().tolist() == [3.0, 60.0, 900.0]


@pytest.mark.parametrize("kernel", HERE)
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "groups": 2, "padding": "same"}])
def test_first_and_second_derivatives_agree_with_finite_differences(kernel, options):
    size, ksize = (3, 4), (2, 2)
    space = output_size(size, ksize, **{k: v for k, v in options.items() if k != "groups"})
    x = torch.randn(2, 4, *size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(*space, 2, 4 // options.get("groups", 1), *ksize, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, *space, dtype=torch.float64, requires_grad=True)

    def layer(*tensors):
        return locally_connected2d(*tensors, **options)

    with use_kernel(kernel):
        assert torch.autograd.gradcheck(layer, (x, weight, bias))
        assert torch.autograd.gradgradcheck(layer, (x, weight, bias), fast_mode=True, atol=1e-4)


def test_an_image_without_a_batch_axis_is_a_batch_of_one():
    x, weight = torch.randn(3, 6, 6), torch.randn(4, 4, 5, 3, 3, 3)
    torch.testing.assert_close(locally_connected2d(x, weight), locally_connected2d(x[None], weight)[0])


@pytest.mark.parametrize("kernel", HERE)
def test_an_empty_batch_gives_an_empty_result_and_zero_gradients(kernel):
    x, weight = torch.randn(0, 3, 6, 6, requires_grad=True), torch.randn(4, 4, 5, 3, 3, 3, requires_grad=True)
    with use_kernel(kernel):
        y = locally_connected2d(x, weight)
        y.sum().backward()
    assert y.shape == (0, 5, 4, 4)
    assert x.grad.shape == x.shape
    assert not weight.grad.any()


@pytest.mark.parametrize("kernel", HERE)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_not_a_number_and_infinity_come_out_as_from_a_convolution(kernel, value):
    x, shared = torch.randn(2, 3, 6, 6), torch.randn(5, 3, 3, 3)
    x[1, 2, 3, 3] = value
    with use_kernel(kernel):
        ours = locally_connected2d(x, shared.expand(6, 6, *shared.shape), padding=1)
    torch.testing.assert_close(ours, F.conv2d(x, shared, padding=1), equal_nan=True)


def test_autocast_computes_in_its_dtype_as_for_a_convolution():
    x, weight, bias = (
        torch.randn(2, 3, 6, 6),
        torch.randn(4, 4, 5, 3, 3, 3, requires_grad=True),
        torch.randn(5),
    )
    with torch.autocast("cpu", torch.bfloat16):
        y = locally_connected2d(x, weight, bias)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert weight.grad.dtype == torch.float32
    torch.testing.assert_close(y.float(), locally_connected2d(x, weight, bias), rtol=0.05, atol=0.3)


@pytest.mark.parametrize("position_major", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_operators_pass_pytorchs_own_checks(position_major, batch, dtype):
    x = torch.randn(batch, 4, 6, 5, dtype=dtype, requires_grad=True)
    weight = torch.randn(6, 5, 6, 2, 3, 3, dtype=dtype, requires_grad=True)
    grad = torch.randn(batch, 6, 6, 5, dtype=dtype)
    geometry = ([1, 1], [1, 1], [1, 1], 2)
    operators = torch.ops.sleepconv
    checks = ("test_schema", "test_faketensor", "test_autograd_registration") + ("test_aot_dispatch_dynamic",) * (
        dtype == torch.float32
    )
    library.opcheck(operators.locally_connected, (x, weight, *geometry, position_major), test_utils=checks)
    gradient = (grad, weight, [6, 5], *geometry, position_major)
    library.opcheck(operators.locally_connected_input_gradient, gradient, test_utils=checks)
    library.opcheck(operators.locally_connected_weight_gradient, (x, grad, [3, 3], *geometry), test_utils=checks)


GOOD_X, GOOD_WEIGHT = torch.zeros(2, 4, 6, 6), torch.zeros(4, 4, 6, 4, 3, 3)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"x": torch.zeros(2, 5, 6, 6)}, ValueError, "5 channels, but the weight takes 4"),
        ({"x": torch.zeros(2, 4, 7, 6)}, ValueError, r"covers \(4, 4\) output positions.*has \(5, 4\)"),
        ({"x": torch.zeros(2, 4, 2, 6)}, ValueError, "smaller than a filter"),
        ({"x": torch.zeros(4, 6)}, ValueError, "4-dimensional input"),
        ({"x": GOOD_X.double()}, TypeError, "same dtype, got torch.float64 and torch.float32"),
        ({"x": GOOD_X.long()}, TypeError, "floating-point"),
        ({"x": GOOD_X.to("meta")}, ValueError, "same device, got meta and cpu"),
        ({"weight": torch.zeros(4, 4, 6, 4, 3)}, ValueError, "6-dimensional weight"),
        ({"weight": torch.zeros(4, 4, 6, 4, 0, 3)}, ValueError, "at least 1"),
        ({"weight": torch.zeros(4, 4, 0, 4, 3, 3)}, ValueError, "at least one"),
        ({"bias": torch.zeros(5)}, ValueError, r"bias must have shape \(6,\).*got \(5,\)"),
        ({"bias": torch.zeros(6, 4, 3)}, ValueError, "one per neuron"),
        ({"groups": 4}, ValueError, "4 channels, but the weight takes 16"),
        ({"groups": 4, "x": torch.zeros(2, 16, 6, 6)}, ValueError, "`out_channels` .6. must be divisible by `groups`"),
        ({"groups": 0}, ValueError, "groups"),
        ({"groups": 2}, ValueError, "4 channels, but the weight takes 8"),
        ({"stride": 0}, ValueError, "`stride` must be an int .* at least 1"),
        ({"stride": (1, 2, 3)}, ValueError, "2 of them"),
        ({"padding": -1}, ValueError, "`padding` must be an int .* at least 0"),
        ({"stride": 1.0}, ValueError, "`stride` must be an int"),
        ({"stride": (1.0, 1.0)}, ValueError, "`stride` must be an int"),
        ({"stride": {1, 2}}, ValueError, "`stride` must be an int"),
        ({"groups": "1"}, ValueError, "`groups` must be an int"),
        ({"padding": None}, ValueError, "`padding` must be an int"),
        ({"x": [1, 2]}, TypeError, "input must be a tensor, got list"),
        ({"bias": 1}, TypeError, "bias must be a tensor, got int"),
        ({"padding": "full"}, ValueError, "'same' or 'valid', got 'full'"),
        ({"padding": "same", "stride": 2}, ValueError, "requires stride 1"),
        ({"dilation": 9}, ValueError, "smaller than a filter"),
    ],
)
def test_bad_input_is_one_clear_error(change, error, says):
    arguments = {"x": GOOD_X, "weight": GOOD_WEIGHT} | change
    with pytest.raises(error, match=says):
        locally_connected2d(**arguments)


def test_signatures_say_the_axes_that_the_results_have():
    from beartype import beartype
    from jaxtyping import jaxtyped

    checked = jaxtyped(typechecker=beartype)(locally_connected2d)
    assert checked(GOOD_X, GOOD_WEIGHT, torch.zeros(6, 4, 4)).shape == (2, 6, 4, 4)


def test_autocast_does_not_hide_a_mix_with_float64():
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError, match="same dtype"):
        locally_connected2d(GOOD_X.double(), GOOD_WEIGHT)
