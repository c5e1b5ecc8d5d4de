"""Conversion of whole models."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sleepconv
from sleepconv import NothingConvertedWarning, to_convolutional, to_locally_connected
from sleepconv.nn import LocallyConnected, LocallyConnected2d


def local_layers(model):
    return [name for name, module in model.named_modules() if isinstance(module, LocallyConnected)]


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=2, padding_mode="reflect")
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        return self.head(self.second(x).mean((2, 3)))


def test_a_locally_connected_resnet20_with_copied_weights_gives_the_convolutional_networks_logits():
    conv = sleepconv.models.resnet20()
    x = torch.randn(4, 3, 32, 32)
    for _ in range(2):
        conv(x)  # running statistics away from their start
    local = to_locally_connected(conv, x, copy_weights=True)
    assert len(local_layers(local)) == 21
    torch.testing.assert_close(local(x), conv(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(local.eval()(x), conv.eval()(x), rtol=1e-4, atol=1e-4)


def test_gradients_of_a_converted_network_sum_to_the_convolutions():
    conv = sleepconv.models.resnet20().double()
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    local = to_locally_connected(conv, x[:1], copy_weights=True)
    for model in (conv, local):
        model(x).square().sum().backward()
    ours, theirs = dict(local.named_parameters()), dict(conv.named_parameters())
    for name, parameter in theirs.items():
        grad = ours[name].grad.sum((0, 1)) if ours[name].dim() == 6 else ours[name].grad
        torch.testing.assert_close(grad, parameter.grad)


def test_the_original_its_statistics_its_mode_and_the_random_state_stay_as_they_were():
    model = Small().train()
    model.norm.eval()
    x = torch.randn(2, 3, 8, 8)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    local = to_locally_connected(model, x, copy_weights=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    assert not local_layers(model)
    assert local.training
    assert not local.norm.training
    assert local.norm.num_batches_tracked == 0
    assert isinstance(local.norm, nn.BatchNorm2d)
    assert local.state_dict().keys() == model.state_dict().keys()


def test_keep_first_keeps_the_convolution_that_runs_first():
    class Reversed(Small):
        def __init__(self):
            super().__init__()
            self._modules["second"], self._modules["first"] = (
                self._modules.pop("second"),
                self._modules.pop("first"),
            )

    local = to_locally_connected(Reversed(), torch.randn(2, 3, 8, 8), keep_first=1)
    assert local_layers(local) == ["second"]


def test_include_and_exclude_choose_layers_and_keep_first_counts_all_of_them():
    model, x = nn.Sequential(Small(), nn.Flatten()), torch.randn(2, 3, 8, 8)
    assert local_layers(to_locally_connected(model, x, include=["0"])) == ["0.first", "0.second"]
    assert local_layers(to_locally_connected(model, x, exclude=["0.first"])) == ["0.second"]
    assert local_layers(to_locally_connected(model, x, include=["0.second"], keep_first=1)) == ["0.second"]
    with pytest.warns(NothingConvertedWarning):
        to_locally_connected(model, x, include=["0.first"], keep_first=1)
    with pytest.raises(ValueError, match="no module 'frist'; the layers to choose from are: 0.first, 0.second$"):
        to_locally_connected(model, x, exclude=["frist"])
    with pytest.raises(TypeError, match="`include` must be a list of names of modules, got the string '0'"):
        to_locally_connected(model, x, include="0")


def test_what_is_excluded_is_neither_checked_nor_named():
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3), nn.ConvTranspose2d(3, 3, 2))
    model[1].weight = model[0].weight
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        local = to_locally_connected(nn.Sequential(nn.Conv2d(3, 3, 1), model), torch.randn(1, 3, 8, 8), exclude=["1"])
    assert local_layers(local) == ["0"]


def test_fresh_weights_differ_between_neurons_and_copied_ones_do_not():
    model, x = Small(), torch.randn(2, 3, 8, 8)
    fresh, copied = (to_locally_connected(model, x, copy_weights=c).first.weight for c in (False, True))
    assert not torch.equal(fresh[0, 0], fresh[3, 4])
    assert torch.equal(copied[0, 0], copied[3, 4])


def test_a_bare_convolution_becomes_a_layer():
    conv = nn.Conv2d(3, 4, 3)
    local = to_locally_connected(conv, torch.randn(1, 3, 6, 6), copy_weights=True)
    assert isinstance(local, LocallyConnected2d)
    x = torch.randn(2, 3, 6, 6)
    torch.testing.assert_close(local(x), conv(x))


def test_in_place_changes_the_model_itself():
    model = Small()
    assert to_locally_connected(model, torch.randn(1, 3, 8, 8), inplace=True) is model
    assert local_layers(model) == ["first", "second"]


def test_a_model_without_convolutions_comes_back_with_a_warning():
    with pytest.warns(NothingConvertedWarning):
        to_locally_connected(nn.Linear(3, 3), torch.randn(1, 3))
    with pytest.warns(NothingConvertedWarning):
        to_locally_connected(Small(), torch.randn(1, 3, 8, 8), keep_first=2)
    with pytest.warns(NothingConvertedWarning):
        to_convolutional(nn.Linear(3, 3))


def test_an_auxiliary_head_that_only_runs_in_training_is_converted_too():
    class WithHead(Small):
        def __init__(self):
            super().__init__()
            self.auxiliary = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            y = super().forward(x)
            return (y, self.auxiliary(x)) if self.training else y

    model = WithHead()
    statistics = model.norm.running_mean.clone()
    local = to_locally_connected(model, torch.randn(2, 3, 8, 8))
    assert "auxiliary" in local_layers(local)
    assert torch.equal(local.norm.running_mean, statistics)


def test_a_model_that_views_its_responses_still_works():
    class Viewing(Small):
        def forward(self, x):
            return self.first(x).view(x.shape[0], -1)

    model = Viewing()
    x = torch.randn(2, 3, 8, 8)
    with pytest.warns(UserWarning, match="not reached.*second"):
        local = to_locally_connected(model, x, copy_weights=True)
    torch.testing.assert_close(local(x), model(x))


def test_operations_in_place_after_batch_norm_are_differentiated_right():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.relu = (
                nn.Conv2d(3, 3, 3, padding=1),
                nn.BatchNorm2d(3),
                nn.ReLU(inplace=True),
            )

        def forward(self, x):
            y = self.norm(self.conv(x))
            y += x
            return self.relu(y).square().mean((2, 3))

    model = InPlace().double()
    x = torch.randn(4, 3, 5, 5, dtype=torch.float64, requires_grad=True)
    local = to_locally_connected(model, x, copy_weights=True)
    grads = [torch.autograd.grad(m(x).sum(), (x, m.norm.weight)) for m in (model, local)]
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_forward_hooks_move_to_the_new_layer():
    model, seen = Small(), []
    model.first.register_forward_hook(lambda module, inputs, output: seen.append(type(module)))
    to_locally_connected(model, torch.randn(1, 3, 8, 8))(torch.randn(1, 3, 8, 8))
    assert seen[-1] is LocallyConnected2d


def test_to_convolutional_goes_back():
    model, x = Small().eval(), torch.randn(2, 3, 8, 8)
    back = to_convolutional(to_locally_connected(model, x, copy_weights=True))
    assert repr(back) == repr(model)
    torch.testing.assert_close(back(x), model(x))
    assert type(back.norm) is nn.BatchNorm2d


def test_the_way_back_leaves_no_hook_on_a_part_that_was_converted_by_itself():
    part, x = Small(), torch.randn(2, 3, 8, 8)
    back = to_convolutional(nn.Sequential(to_locally_connected(part, x), nn.Flatten()))
    assert not any(module._forward_hooks for module in back.modules())


def test_a_converted_network_compiles_as_one_graph():
    model, x = Small(), torch.randn(2, 3, 8, 8)
    local = to_locally_connected(model, x)
    torch.testing.assert_close(torch.compile(local, fullgraph=True)(x), local(x))


def test_what_leaves_a_converted_model_can_be_viewed():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))
    x = torch.randn(2, 3, 6, 6)
    assert to_locally_connected(model, x[:1])(x).view(2, -1).shape == (2, 72)


def test_a_sample_of_one_image_does_not_make_a_model_copy_its_responses():
    class Pooled(Small):
        def forward(self, x):
            y = F.avg_pool2d(self.second(F.relu(self.norm(self.first(x)))), 2)
            return y.view(y.shape[0], -1)

    local = to_locally_connected(Pooled(), torch.randn(1, 3, 8, 8))
    assert local.first.position_major
    assert not local.second.position_major  # for one image, pooling keeps the order, and then it cannot be viewed
    assert local(torch.randn(1, 3, 8, 8)).shape == (1, 24)


def test_frozen_parameters_stay_frozen_both_ways():
    model, x = Small(), torch.randn(2, 3, 8, 8)
    model.first.requires_grad_(False)
    local = to_locally_connected(model, x)
    back = to_convolutional(local)
    for converted in (local, back):
        assert not converted.first.weight.requires_grad
        assert not converted.first.bias.requires_grad
        assert converted.second.bias.requires_grad


def test_hooks_with_keywords_and_backward_hooks_move_too():
    model, seen = Small(), []
    model.first.register_forward_pre_hook(lambda module, a, k: seen.append("pre"), with_kwargs=True)
    model.first.register_full_backward_hook(lambda module, gi, go: seen.append("backward"))
    to_locally_connected(model, torch.randn(1, 3, 8, 8))(torch.randn(2, 3, 8, 8)).sum().backward()
    assert seen[-2:] == ["pre", "backward"]


def test_a_buffer_that_the_model_replaces_is_put_back():
    class Counting(Small):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls = self.calls + 1
            return super().forward(x)

    assert to_locally_connected(Counting(), torch.randn(2, 3, 8, 8)).calls == 0


@pytest.mark.parametrize("options", [{"momentum": None}, {"track_running_stats": False}, {"affine": False}])
@pytest.mark.parametrize("training", [True, False])
def test_every_kind_of_batch_norm_computes_the_same_in_the_other_layout(options, training):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4, **options), nn.ReLU()).train(training)
    x = torch.randn(3, 3, 6, 5)
    local = to_locally_connected(model, x, copy_weights=True)
    torch.testing.assert_close(local(x), model(x))
    for ours, theirs in zip(local.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("training", "runs"), [(True, 4), (False, 3)])
def test_a_model_runs_once_per_mode_before_and_after_its_conversion(training, runs):
    class Counting(Small):
        calls = 0

        def forward(self, x):
            Counting.calls += 1
            return super().forward(x)

    to_locally_connected(Counting().train(training), torch.randn(2, 3, 8, 8))
    assert Counting.calls == runs


def test_a_model_that_runs_only_without_gradients_is_converted_and_keeps_no_layout():
    class InPlaceOnAParameter(Small):
        def forward(self, x):
            self.norm.weight.mul_(1)
            return super().forward(x)

    local = to_locally_connected(InPlaceOnAParameter(), torch.randn(2, 3, 8, 8))
    assert local_layers(local) == ["first", "second"]
    assert not local.first.position_major
