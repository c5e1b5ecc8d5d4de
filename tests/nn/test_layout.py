from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sleepconv import to_locally_connected
from sleepconv.nn import LocallyConnected2d, keep_layout, known_operations

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def gradients(model, x, grad):
    """Of the input and of each normalisation; in float64, so that only another order of numbers makes a difference."""
    x = x.clone().requires_grad_()
    model(x).backward(grad)
    norms = [module for module in model.modules() if isinstance(module, tuple(NORMS.values()))]
    return [x.grad] + [parameter.grad for norm in norms for parameter in norm.parameters()]


def deep(axes):
    convolution, norm = CONVOLUTIONS[axes], NORMS[axes]
    return nn.Sequential(convolution(3, 4, 3), norm(4), nn.ReLU(), convolution(4, 5, 2), norm(5), nn.ReLU())


def between_normalisations(axes):
    return nn.Sequential(NORMS[axes](3), CONVOLUTIONS[axes](3, 4, 3), NORMS[axes](4))


@pytest.mark.parametrize(("build", "keep_first"), [(deep, 0), (deep, 1), (between_normalisations, 0)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_normalised_networks_have_the_gradients_of_the_convolutional_one(axes, batch, training, build, keep_first):
    torch.manual_seed(0)
    model = build(axes).double().train(training)
    x = torch.randn(batch, 3, *(6,) * axes, dtype=torch.float64)
    local = to_locally_connected(model, x, keep_first=keep_first, copy_weights=True)
    grad = torch.randn_like(model(x))
    for ours, theirs in zip(gradients(local, x, grad), gradients(model, x, grad), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("axes", [2, 3])
def test_one_image_lies_as_pytorchs_own_channels_last_images_do(axes):
    layer = to_locally_connected(CONVOLUTIONS[axes](3, 4, 3), torch.randn(1, 3, *(6,) * axes))
    layer.position_major = True
    memory = {2: torch.channels_last, 3: torch.channels_last_3d}[axes]
    y = layer(torch.randn(1, 3, *(6,) * axes)).detach()
    assert y.stride() == torch.empty(y.shape, memory_format=memory).stride()


class TwoBranches(nn.Module):
    """Two layers in front of a third one, and something between the first and the sum."""

    def __init__(self, between):
        super().__init__()
        self.first, self.second, self.last = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
        self.between = between

    def forward(self, x):
        return self.last(self.between(self.first(x)) + self.second(x))


class Halved(torch.autograd.Function):
    """A function whose backward pass nobody can know."""

    @staticmethod
    def forward(ctx, y):
        return y * 0.5

    @staticmethod
    def backward(ctx, grad):
        return (grad.view(-1) * 0.5).view(grad.shape)


class Half(nn.Module):
    def forward(self, y):
        return Halved.apply(y)


class OnlyInTraining(nn.InstanceNorm2d):
    def forward(self, y):
        return super().forward(y) if self.training else y


class Hooked(nn.Identity):
    def __init__(self):
        super().__init__()
        self.register_forward_hook(lambda module, inputs, y: y.view(y.shape[0], -1).view(y.shape))


X = torch.randn(2, 4, 6, 6)


@pytest.mark.parametrize("between", [nn.Identity(), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.GELU(), nn.Dropout()])
def test_between_modules_that_are_known_responses_stay_position_by_position(between):
    local = to_locally_connected(TwoBranches(between), X)
    assert [layer.position_major for layer in (local.first, local.second, local.last)] == [True, True, False]
    assert not local.first(X).is_contiguous()


@pytest.mark.parametrize(
    "between",
    [nn.InstanceNorm2d(4), OnlyInTraining(4), Half(), Hooked(), torch.jit.script(nn.Softmax(1))],
    ids=lambda module: type(module).__name__,
)
@pytest.mark.parametrize("training", [True, False])
def test_what_is_not_known_gets_contiguous_responses_and_so_does_all_that_is_added_to_its_result(between, training):
    local = to_locally_connected(TwoBranches(between).train(training), X)
    assert [layer.position_major for layer in (local.first, local.second, local.last)] == [False] * 3
    assert local.first(X).is_contiguous()


def test_a_model_that_cannot_train_on_the_sample_gets_contiguous_responses():
    class Untrainable(TwoBranches):
        def forward(self, x):
            assert not self.training
            return super().forward(x)

    local = to_locally_connected(Untrainable(nn.Identity()).eval(), X)
    assert not local.first.position_major


def test_a_network_built_by_hand_keeps_the_layout_when_it_is_asked_to():
    first, second = (LocallyConnected2d(4, 4, 3, input_size=6, padding=1) for _ in range(2))
    model = nn.Sequential(first, nn.BatchNorm2d(4), nn.ReLU(), second).double()
    x = X.double()
    expected = model(x)
    assert first(x).is_contiguous()
    assert keep_layout(model, x) is model
    assert not first(x).is_contiguous()
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("position_major", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_gradient_lies_in_memory_as_its_input_does(batch, position_major):
    layer = LocallyConnected2d(4, 5, 3, input_size=6)
    layer.position_major = position_major
    x = torch.randn(batch, 4, 6, 6)
    for y in (x, x.to(memory_format=torch.channels_last), x.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)):
        leaf = y.detach().requires_grad_()
        (grad,) = torch.autograd.grad(layer(leaf).square().sum(), leaf)
        assert grad.stride() == y.stride()


class Mixed(nn.Module):
    """One layer's responses through a module that keeps them, added to another's through one that does not."""

    def __init__(self, through, call):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)
        self.through, self.norm, self.call = through, nn.InstanceNorm2d(4), call

    def forward(self, x):
        return self.c(self.call(self.through, self.a(x)) + self.norm(self.b(x)))


def hooked():
    relu = nn.ReLU()
    relu.register_full_backward_hook(lambda *_: None)
    return relu


def tried(module, x):
    try:
        return module(x)
    except (ValueError, RuntimeError):
        return x


@pytest.mark.parametrize(
    ("through", "call"),
    [
        (hooked, lambda module, x: module(x)),
        (lambda: nn.BatchNorm2d(7), tried),
        (lambda: nn.BatchNorm2d(4), lambda module, x: module(input=x)),
    ],
    ids=["a hook that makes aliases", "a module that fails", "a keyword"],
)
def test_a_layers_responses_are_followed_through(through, call):
    conv, x = Mixed(through(), call).double(), torch.randn(3, 3, 6, 6, dtype=torch.float64)
    local = to_locally_connected(conv, x, copy_weights=True)
    gradients = []
    for model in (conv, local):
        images = x.clone().requires_grad_()
        model(images).pow(3).sum().backward()
        gradients.append(images.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


class ByBatch(nn.Module):
    """Normalises only batches of more than two, so that a dry run on one image does not see it."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)
        self.norm = nn.InstanceNorm2d(4)

    def forward(self, x):
        return self.c(self.a(x) + (self.norm(self.b(x)) if len(x) > 2 else self.b(x)))


class Stack(nn.Sequential):
    """A part of it, a sum with what PyTorch normalises, and the rest, which the dry run on the whole does not see."""

    def in_parts(self, x):
        y = self[:2](x) + F.instance_norm(x[:, :4])
        return self[2:](y)


def replaced(x):
    """Give the model a skip connection that was not there when it was converted."""
    conv = TwoBranches(nn.Identity()).double()
    local = to_locally_connected(conv, x[:1], copy_weights=True)
    conv.between, local.between = nn.InstanceNorm2d(4), nn.InstanceNorm2d(4)
    return conv, local


def in_parts(x):
    conv = Stack(nn.Conv2d(4, 4, 1), nn.GELU(), nn.ReLU(), nn.Conv2d(4, 4, 1)).double()
    local = to_locally_connected(conv, x, copy_weights=True)
    assert local[0].position_major
    return conv.in_parts, local.in_parts


def by_batch(x):
    conv = ByBatch().double()
    return conv, to_locally_connected(conv, x[:1], copy_weights=True)


@pytest.mark.parametrize("changed", [replaced, in_parts, by_batch])
def test_instance_norm_that_the_dry_run_did_not_see_gets_the_convolutions_gradient(changed):
    x = torch.randn(5, 3 if changed is by_batch else 4, 6, 6, dtype=torch.float64)
    gradients = []
    for model in changed(x):
        images = x.clone().requires_grad_()
        model(images).pow(3).sum().backward()
        gradients.append(images.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize(
    "between",
    [
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.ReLU(inplace=True),
        nn.GELU(),
        nn.Hardswish(),
        nn.Dropout(),
        nn.AvgPool2d(3, 1, 1),
    ],
    ids=lambda module: type(module).__name__,
)
def test_known_operations_get_gradients_as_they_come(between, monkeypatch):
    local, guarded = to_locally_connected(TwoBranches(between), X), []
    monkeypatch.setattr(known_operations, "_contiguous", lambda gradients: guarded.extend(gradients))
    local(X).sum().backward()
    assert local.first.position_major
    assert not [gradient for gradient in guarded if gradient.shape == X.shape]  # only those of biases


@dataclass
class Responses:
    early: torch.Tensor
    late: torch.Tensor


def test_responses_in_an_object_that_one_cannot_look_into_are_contiguous():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)

        def forward(self, x):
            early = self.first(x)
            return Responses(early, self.second(early))

    responses = to_locally_connected(Named(), X)(X)
    assert responses.early.is_contiguous()
    assert responses.late.is_contiguous()


def test_a_layer_with_a_forward_of_its_own_is_looked_into():
    class Viewing(LocallyConnected2d):
        def forward(self, x):
            return super().forward(x.view(x.shape)).view(-1, 4, 4, 4)

    first, last = (LocallyConnected2d(4, 4, 3, input_size=size) for size in (8, 4))
    model = keep_layout(nn.Sequential(first, Viewing(4, 4, 3, input_size=6), last), torch.randn(2, 4, 8, 8))
    assert not any(layer.position_major for layer in model)
    assert model(torch.randn(2, 4, 8, 8)).shape == (2, 4, 2, 2)


def test_the_graph_of_a_layer_is_recognised_as_its_own():
    y = LocallyConnected2d(3, 4, 3, input_size=6, bias=False)(torch.randn(2, 3, 6, 6))
    assert known_operations._plain_name(y.grad_fn.name()) in known_operations._ENDS
