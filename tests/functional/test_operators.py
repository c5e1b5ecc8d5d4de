"""The registered operators, called by hand: what does not fit is an error, never a crash."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from sleepconv.functional import locally_connected2d
from sleepconv.functional.feedback import LocallyConnectedProduct, with_feedback

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
    ("x", X[0], ValueError, "4-dimensional input"),
    ("x", X[:, :0], ValueError, "at least one input and one output channel"),
    ("x", X[:, :, :0], ValueError, "`input_size` must be an int .* at least 1"),
    ("x", X.double(), TypeError, "same dtype"),
    ("x", X.to("meta"), ValueError, "same device"),
    ("weight", WEIGHT[0], ValueError, "6-dimensional weight"),
    ("weight", WEIGHT[:2], ValueError, "must have shape|output positions"),
    ("weight", WEIGHT.repeat(9, 9, 1, 1, 1, 1), ValueError, "must have shape|output positions"),
    ("weight", WEIGHT[..., :0], ValueError, "`kernel_size` must be an int .* at least 1"),
    ("weight", WEIGHT[:, :, :0], ValueError, "at least one input and one output channel"),
    ("weight", WEIGHT.long(), TypeError, "floating-point"),
    ("weight", WEIGHT.to("meta"), ValueError, "same device"),
    ("grad", GRAD[0], ValueError, "4-dimensional gradient"),
    ("grad", GRAD[:, :, :2], ValueError, "must have shape|output positions"),
    ("grad", GRAD.half(), TypeError, "same dtype"),
    ("input_size", [600, 600], ValueError, r"has \(598, 598\)"),
    ("input_size", [-6, 6], ValueError, "`input_size`"),
    ("input_size", [6], ValueError, "`input_size`"),
    ("kernel_size", [5, 5], ValueError, "output positions"),
    ("kernel_size", [0, 3], ValueError, "`kernel_size`"),
]
BAD_GEOMETRY = [
    ("stride", [], "one to three"),
    ("stride", [0, 1], "`stride` must be an int .* at least 1"),
    ("stride", [1], "2|1 of them"),
    ("padding", [-1, 0], "`padding` must be an int .* at least 0"),
    ("padding", [3, 0], "output positions"),
    ("dilation", [0, 0], "`dilation` must be an int .* at least 1"),
    ("dilation", [2**62, 1], "smaller than a filter"),
    ("groups", 0, "`groups` must be an int, at least 1"),
    ("groups", 4, "channels, but the weight takes 16|`out_channels` .6. must be divisible by `groups` .4."),
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
    with pytest.raises(ValueError, match="input has 9 channels, but the weight takes 4"):
        call("locally_connected", x=torch.randn(2, 9, 6, 6))
    with pytest.raises(ValueError, match=r"gradient must have shape \(2, 6, 4, 4\)"):
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
    with pytest.raises(ValueError, match="must have shape|output positions|smaller than a filter"):
        call(operator, **bare | {name: bare[name][:, :, :2]})


def test_the_odd_zero_of_same_padding_lies_behind():
    x, weight = torch.randn(1, 1, 5, 5), torch.randn(5, 5, 1, 1, 2, 4)
    ours = torch.ops.sleepconv.locally_connected(x, weight, [1, 1], [0, 1, 1, 2], [1, 1], 1, False)
    assert torch.equal(ours, locally_connected2d(x, weight, padding="same"))


def test_padding_on_both_sides_must_give_the_positions_that_the_weight_covers():
    x, weight = torch.randn(1, 1, 5, 5), torch.randn(5, 5, 1, 1, 2, 4)
    with pytest.raises(ValueError, match=r"padding=\(0, 1\), dilation=\(1, 1\) has \(4, 4\)"):
        torch.ops.sleepconv.locally_connected(x, weight, [1, 1], [0, 1], [1, 1], 1, False)


class Watch(TorchDispatchMode):
    """Sees every operator; without it, the layer is computed outside of PyTorch's dispatcher."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func.overloadpacket)
        return func(*args, **(kwargs or {}))


def derivatives(position_major):
    x, weight = X.double().requires_grad_(), WEIGHT.double().requires_grad_()
    y = locally_connected2d(x, weight, position_major=position_major)
    first = torch.autograd.grad(y.pow(3).sum(), [x, weight], create_graph=True)
    second = torch.autograd.grad(sum(part.pow(2).sum() for part in first), [x, weight])
    return [y, *first, *second]


@pytest.mark.parametrize("position_major", [False, True])
def test_with_and_without_a_watcher_values_and_two_derivatives_are_the_same(position_major):
    alone = derivatives(position_major)
    with Watch() as watch:
        watched = derivatives(position_major)
    assert torch.ops.sleepconv.locally_connected in watch.seen
    for one, other in zip(alone, watched, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert one.stride() == other.stride()


def test_batched_gradients_are_those_of_a_loop():
    x, weight = X.clone().requires_grad_(), WEIGHT.clone().requires_grad_()
    y, grads = locally_connected2d(x, weight), torch.randn(3, *GRAD.shape)
    batched = torch.autograd.grad(y, [x, weight], grads, is_grads_batched=True, retain_graph=True)
    for i, grad in enumerate(grads):
        for one, all_of_them in zip(torch.autograd.grad(y, [x, weight], grad, retain_graph=True), batched, strict=True):
            torch.testing.assert_close(one, all_of_them[i])


def test_a_mode_for_functions_sees_the_operator_and_a_default_device_does_not_matter():
    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.add(function)
            return function(*args, **(kwargs or {}))

    seen = set()
    with Functions(), torch.device("meta"):
        assert locally_connected2d(X, WEIGHT).device.type == "cpu"
    assert torch.ops.sleepconv.locally_connected.default in seen


def test_tensors_that_pytorch_has_to_prepare_are_prepared():
    x, weight = X.clone().requires_grad_(), WEIGHT.clone().requires_grad_()
    y = locally_connected2d(x, weight)
    torch.testing.assert_close(locally_connected2d(x, torch._neg_view(weight)), -y)
    negated = torch.autograd.grad(y, [x, weight], torch._neg_view(GRAD), retain_graph=True)
    functional = torch.func.functionalize(lambda g: torch.autograd.grad(y, [x, weight], g, retain_graph=True))(GRAD)
    for one, two, three in zip(negated, functional, torch.autograd.grad(y, [x, weight], GRAD), strict=True):
        torch.testing.assert_close((-one, two), (three, three))


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda weight: weight.repeat(1, 1, 50, 1, 1, 1), ValueError, "gradient must have shape"),
        (lambda weight: weight[:2], ValueError, "must have shape|output positions"),
        (lambda weight: weight.double(), TypeError, "same dtype"),
    ],
)
def test_feedback_that_does_not_fit_is_an_error(change, error, says):
    x, product = X.clone().requires_grad_(), LocallyConnectedProduct([1, 1], [0, 0], [1, 1], 1, False)
    with pytest.raises(error, match=says):
        with_feedback(product, x, WEIGHT, change(WEIGHT)).backward(GRAD)


def test_more_threads_than_bands_compute_the_same():
    threads, expected = torch.get_num_threads(), locally_connected2d(X, WEIGHT)
    try:
        torch.set_num_threads(80)
        torch.testing.assert_close(locally_connected2d(X, WEIGHT), expected, rtol=0, atol=0)
    finally:
        torch.set_num_threads(threads)
