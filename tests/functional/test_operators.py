"""The registered operators, called by hand: what does not fit is an error, never a crash."""

import pytest
import torch

from sleepconv.functional import locally_connected2d

X, WEIGHT, GRAD = torch.randn(2, 4, 6, 6), torch.randn(4, 4, 6, 4, 3, 3), torch.randn(2, 6, 4, 4)
GEOMETRY = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1}
CALLS = {
    "locally_connected": {"x": X, "weight": WEIGHT, "position_major": False},
    "locally_connected_input_gradient": {
        "grad": GRAD,
        "weight": WEIGHT,
        "input_size": [6, 6],
        "position_major": False,
    },
    "locally_connected_weight_gradient": {"x": X, "grad": GRAD, "kernel_size": [3, 3]},
}
BAD_TENSORS = [
    ("x", X[0], ValueError, "input has 4 axes"),
    ("x", X[:, :0], ValueError, "at least one of each"),
    ("x", X[:, :, :0], ValueError, "input's size is a whole number ≥ 1"),
    ("x", X.double(), TypeError, "one dtype"),
    ("x", X.to("meta"), ValueError, "one device"),
    ("weight", WEIGHT[0], ValueError, "weight has 6 axes"),
    ("weight", WEIGHT[:2], ValueError, "should be|output positions"),
    ("weight", WEIGHT.repeat(9, 9, 1, 1, 1, 1), ValueError, "should be|output positions"),
    ("weight", WEIGHT[..., :0], ValueError, "filters' size is a whole number ≥ 1"),
    ("weight", WEIGHT[:, :, :0], ValueError, "at least one of each"),
    ("weight", WEIGHT.long(), TypeError, "floating-point"),
    ("weight", WEIGHT.to("meta"), ValueError, "one device"),
    ("grad", GRAD[0], ValueError, "gradient has 4 axes"),
    ("grad", GRAD[:, :, :2], ValueError, "should be|output positions"),
    ("grad", GRAD.half(), TypeError, "one dtype"),
    ("input_size", [600, 600], ValueError, r"has \(598, 598\)"),
    ("input_size", [-6, 6], ValueError, "input's size"),
    ("input_size", [6], ValueError, "input's size"),
    ("kernel_size", [5, 5], ValueError, "output positions"),
    ("kernel_size", [0, 3], ValueError, "filters' size"),
]
BAD_GEOMETRY = [
    ("stride", [], "one to three"),
    ("stride", [0, 1], "stride is a whole number ≥ 1"),
    ("stride", [1], "2|1 of them"),
    ("padding", [-1, 0], "padding is a whole number ≥ 0"),
    ("padding", [3, 0], "output positions"),
    ("dilation", [0, 0], "dilation is a whole number ≥ 1"),
    ("dilation", [2**62, 1], "output positions"),
    ("groups", 0, "groups is a whole number ≥ 1"),
    ("groups", 4, "groups divides both"),
]


def call(operator, **changes):
    return getattr(torch.ops.sleepconv, operator)(**CALLS[operator] | GEOMETRY | changes)


@pytest.mark.parametrize(
    ("operator", "name", "value", "error", "says"),
    [(operator, *bad) for bad in BAD_TENSORS for operator in CALLS if bad[0] in CALLS[operator]],
)
def test_tensors_that_do_not_fit_are_an_error(operator, name, value, error, says):
    with pytest.raises(error, match=says):
        call(operator, **{name: value})


def test_channels_and_batches_that_disagree_are_an_error():
    with pytest.raises(ValueError, match=r"weight should be \(4, 4, 6, 9, 3, 3\)"):
        call("locally_connected", x=torch.randn(2, 9, 6, 6))
    with pytest.raises(ValueError, match=r"gradient should be \(2, 6, 4, 4\)"):
        call("locally_connected_weight_gradient", grad=torch.randn(50, 6, 4, 4))


@pytest.mark.parametrize("operator", CALLS)
@pytest.mark.parametrize(("name", "value", "says"), BAD_GEOMETRY)
def test_numbers_that_make_no_layer_are_an_error(operator, name, value, says):
    with pytest.raises(ValueError, match=says):
        call(operator, **{name: value})


@pytest.mark.parametrize("operator", CALLS)
def test_without_memory_the_operators_say_the_shape_and_refuse_the_same(operator):
    bare = {k: v.to("meta") for k, v in CALLS[operator].items() if isinstance(v, torch.Tensor)}
    assert call(operator, **bare).shape == call(operator).shape
    name = "grad" if "grad" in bare else "x"
    with pytest.raises(ValueError, match="do not fit each other|output positions"):
        call(operator, **bare | {name: bare[name][:, :, :2]})


def test_the_odd_zero_of_same_padding_lies_behind():
    x, weight = torch.randn(1, 1, 5, 5), torch.randn(5, 5, 1, 1, 2, 4)
    ours = torch.ops.sleepconv.locally_connected(x, weight, [1, 1], [0, 1], [1, 1], 1, False)
    assert torch.equal(ours, locally_connected2d(x, weight, padding="same"))
