"""Valid models of many kinds are converted, and compute the same; what is refused is refused for its true reason."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

from sleepconv import to_convolutional, to_locally_connected, to_per_patch
from sleepconv.nn import LocallyConnected2d

X = torch.randn(2, 3, 6, 6)


class OneConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


class LikeTheWeight(OneConvolution):
    def forward(self, x):
        x = x.to(self.conv.weight).type_as(self.conv.weight) + next(self.parameters()).new_zeros(1)
        return self.conv(x)


class OneAtATime(OneConvolution):
    def forward(self, x):
        if len(x) != 1:
            raise RuntimeError("one image at a time")
        return self.conv(x)


class WithState(OneConvolution):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.GRU(36, 5)

    def forward(self, x, state):
        return self.recurrent(self.conv(x).flatten(2).movedim(1, 0), state)[0]


class Nested(OneConvolution):
    def forward(self, batch):
        return self.conv(batch["images"][0])


class AsksForTargetsInTraining(OneConvolution):
    def forward(self, x, targets=None):
        if self.training and targets is None:
            raise AssertionError("no targets")
        return self.conv(x)


class AsksForMoreInEvaluation(OneConvolution):
    def forward(self, x, beams=None):
        if not self.training and beams is None:
            raise AssertionError("no beams")
        return self.conv(x)


@pytest.mark.parametrize(
    ("model", "sample"),
    [
        (LikeTheWeight(), (X,)),
        (OneAtATime(), (X[:1],)),
        (WithState(), (X, torch.randn(1, 2, 5))),
        (Nested(), ({"images": [X]},)),
        (AsksForTargetsInTraining().train(), (X, X)),
        (nn.Sequential(nn.Conv2d(1, 2, 3)), (torch.randn(1, 6, 6),)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_valid_model_computes_the_same_after_its_conversion(model, sample):
    local = to_locally_connected(model, sample, copy_weights=True)
    assert any(isinstance(module, LocallyConnected2d) for module in local.modules())
    torch.testing.assert_close(local(*sample), model(*sample))


@pytest.mark.parametrize("model", [AsksForTargetsInTraining(), AsksForMoreInEvaluation()])
def test_a_model_that_runs_on_the_sample_in_one_mode_only_is_converted(model):
    assert isinstance(to_locally_connected(model.train(), X).conv, LocallyConnected2d)


def test_a_model_that_cannot_run_says_its_own_error():
    with pytest.raises(AssertionError, match="no beams"):
        to_locally_connected(AsksForMoreInEvaluation().eval(), X)


def test_a_compiled_model_is_converted():
    model = torch.compile(OneConvolution(), backend="eager")
    expected = model(X)
    local = to_locally_connected(model, X, copy_weights=True)
    torch.testing.assert_close(local(X), expected)
    assert isinstance(local.conv, LocallyConnected2d)


def test_what_is_registered_on_a_layer_stays_on_it_both_ways():
    class Masked(OneConvolution):
        def __init__(self):
            super().__init__()
            self.conv.register_buffer("mask", torch.rand(6, 6))
            self.conv.register_buffer("hidden", torch.rand(1), persistent=False)
            self.conv.gain = nn.Parameter(torch.rand(1))

        def forward(self, x):
            return self.conv(x) * self.conv.mask * self.conv.gain + self.conv.hidden

    model = Masked()
    local = to_locally_connected(model, X, copy_weights=True)
    back = to_convolutional(local)
    for converted in (local, back):
        assert list(converted.state_dict()) == list(model.state_dict())
        torch.testing.assert_close(converted(X), model(X))


def test_a_model_that_cannot_be_copied_is_converted_in_place():
    model = OneConvolution()
    model.response = model(X)  # no leaf of autograd's graph: PyTorch does not copy it
    with pytest.raises(ValueError, match="cannot be copied .*convert it with inplace=True"):
        to_locally_connected(model, X)
    assert isinstance(to_locally_connected(model, X, inplace=True).conv, LocallyConnected2d)


def test_pruned_filters_are_refused_by_name():
    model = OneConvolution()
    prune.l1_unstructured(model.conv, "weight", 0.5)
    with pytest.raises(ValueError, match=r"conv cannot.*parametrized \(.*pruning"):
        to_locally_connected(model, X, inplace=True)


@pytest.mark.parametrize("batch", [1, 2])
def test_what_leaves_a_converted_model_or_layer_can_be_viewed_for_any_batch(batch):
    conv = nn.Conv2d(3, 4, 3)
    for model in (conv, nn.Sequential(conv), nn.Sequential(conv, nn.ReLU())):
        assert to_locally_connected(model, X)(X[:batch]).view(batch, -1).shape == (batch, 64)
    tokens = torch.randn(batch, 5, 4)
    assert to_per_patch(nn.Linear(4, 3), tokens)(tokens).view(batch, -1).shape == (batch, 15)


def test_a_weight_whose_values_are_used_beside_the_layer_is_still_refused():
    class Cast(OneConvolution):
        def forward(self, x):
            return F.conv2d(x, self.conv.weight.to(x.dtype)) + self.conv(x).mean()

    with pytest.raises(ValueError, match="conv cannot.*used directly"):
        to_locally_connected(Cast(), X)
