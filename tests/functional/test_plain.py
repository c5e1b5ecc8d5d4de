"""Where our operators have no rule (``torch.func``, forward mode, tracing), plain operations give the same."""

import pytest
import torch
from hypothesis import given, settings
from tests.functional.test_locally_connected import FUNCTIONS, convolutions, output_size
from torch.autograd import forward_ad

import sleepconv
from sleepconv.functional import locally_connected2d

X = torch.randn(2, 4, 6, 6, dtype=torch.float64)
WEIGHT = torch.randn(3, 3, 6, 2, 3, 3, dtype=torch.float64)
OPTIONS = {"stride": 2, "padding": 1, "groups": 2}


def respond(x, weight):
    return locally_connected2d(x, weight, **OPTIONS)


@settings(max_examples=60, deadline=None)
@given(case=convolutions())
def test_plain_operations_equal_our_operators(case):
    axes, batch, (ins, outs), size, kernel, options = case
    space = output_size(size, kernel, **{k: v for k, v in options.items() if k != "groups"})
    x = torch.randn(batch, ins, *size, dtype=torch.float64)
    weight = torch.randn(*space, outs, ins // options["groups"], *kernel, dtype=torch.float64)
    local = FUNCTIONS[axes][0]
    plainly = torch.func.vmap(lambda image: local(image, weight, **options))
    torch.testing.assert_close(plainly(x), local(x, weight, **options))


def test_directional_derivatives_are_those_of_a_bilinear_function():
    dx, dw = torch.randn_like(X), torch.randn_like(WEIGHT)
    expected = respond(dx, WEIGHT) + respond(X, dw)
    torch.testing.assert_close(torch.func.jvp(respond, (X, WEIGHT), (dx, dw))[1], expected)
    with forward_ad.dual_level():
        dual = respond(forward_ad.make_dual(X, dx), forward_ad.make_dual(WEIGHT, dw))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, expected)


@pytest.mark.parametrize("argument", [0, 1])
def test_jacobians_agree_forward_backward_and_through_our_operators(argument):
    expected = torch.autograd.functional.jacobian(respond, (X, WEIGHT))[argument]
    for jacobian in (torch.func.jacfwd, torch.func.jacrev):
        torch.testing.assert_close(jacobian(respond, argument)(X, WEIGHT), expected)


def test_gradients_of_single_images_sum_to_that_of_the_batch():
    images = torch.randn(3, 3, 16, 16)
    model = sleepconv.to_locally_connected(sleepconv.models.resnet8(), images).eval()

    def loss(parameters, image):
        return torch.func.functional_call(model, parameters, (image[None],)).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(dict(model.named_parameters()), images)
    model(images).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(each[name].sum(0), parameter.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit.trace:DeprecationWarning")
def test_a_traced_model_has_plain_operations_only_and_takes_other_batches():
    images = torch.randn(3, 3, 16, 16)
    model = sleepconv.to_locally_connected(sleepconv.models.resnet8(), images).eval()
    traced = torch.jit.trace(model, images)
    assert "sleepconv::" not in str(traced.inlined_graph)
    torch.testing.assert_close(traced(images[:1]), model(images[:1]))
