"""What cannot be converted is refused, or named, and nothing is lost."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from sleepconv import NothingConvertedWarning, to_locally_connected
from sleepconv.nn import LocallyConnected2d, keep_layout


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 6, 3), nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))


def test_a_module_used_twice_stays_one_module_if_the_sizes_agree_and_is_named_if_not():
    conv = nn.Conv2d(3, 3, 3, padding=1)
    local = to_locally_connected(nn.Sequential(conv, nn.ReLU(), conv), torch.randn(1, 3, 6, 6))
    assert local[0] is local[2]
    model = nn.Sequential(conv, nn.MaxPool2d(2), conv, nn.Conv2d(3, 3, 1))
    with pytest.warns(UserWarning, match=r"different sizes: 0 \(\(3, 3\) and \(6, 6\)\)"):
        local = to_locally_connected(model, torch.randn(1, 3, 6, 6))
    assert type(local[0]) is nn.Conv2d
    assert isinstance(local[3], LocallyConnected2d)
    with pytest.warns(NothingConvertedWarning):
        to_locally_connected(model[:3], torch.randn(1, 3, 6, 6))


def test_a_convolution_that_the_sample_does_not_reach_is_named():
    model = Small()
    model.unused = nn.Conv2d(3, 3, 1)
    with pytest.warns(UserWarning, match="not reached.*unused"):
        to_locally_connected(model, torch.randn(1, 3, 8, 8))


def test_tied_parametrized_overridden_and_directly_used_convolutions_are_refused_by_name():
    x = torch.randn(1, 3, 6, 6)
    tied = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match="0 cannot.*tied"):
        to_locally_connected(tied, x)
    for norm in (parametrizations.weight_norm, parametrizations.spectral_norm, nn.utils.spectral_norm):
        with pytest.raises(ValueError, match="0 cannot.*parametrized"):
            to_locally_connected(nn.Sequential(norm(nn.Conv2d(3, 3, 3))), x)

    class Standardised(nn.Conv2d):
        def forward(self, x):
            return F.conv2d(x, self.weight - self.weight.mean())

    with pytest.raises(ValueError, match="0 cannot.*Standardised overrides how a "):
        to_locally_connected(nn.Sequential(Standardised(3, 3, 3)), x)

    class Direct(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x):
            return F.conv2d(self.conv(x), self.conv.weight)

    with pytest.raises(ValueError, match="conv cannot.*used directly"):
        to_locally_connected(Direct(), x)


def test_a_parameter_used_through_the_functional_interface_is_named():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3)
            self.kernel = nn.Parameter(torch.randn(3, 3, 3, 3))

        def forward(self, x):
            return F.conv2d(self.conv(x), self.kernel)

    with pytest.warns(UserWarning, match="directly through conv2d: kernel"):
        to_locally_connected(Functional(), torch.randn(1, 3, 8, 8))


def test_wrapped_models_and_negative_counts_are_refused():
    with pytest.raises(TypeError, match="before it becomes a DataParallel"):
        to_locally_connected(nn.DataParallel(Small()), torch.randn(1, 3, 8, 8))
    with pytest.raises(ValueError, match="keep_first"):
        to_locally_connected(Small(), torch.randn(1, 3, 8, 8), keep_first=-1)


def test_convolutions_that_the_model_calls_through_a_plain_list_are_refused_and_the_model_stays_whole():
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3)
            self.layers = [self.conv]

        def forward(self, x):
            return self.layers[0](x)

    model = Listed()
    with pytest.raises(ValueError, match="conv would not be used.*ModuleList"):
        to_locally_connected(model, torch.randn(1, 3, 6, 6), inplace=True)
    assert type(model.conv) is nn.Conv2d


def test_weights_used_otherwise_and_tied_biases_are_refused_by_name():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3)

        def forward(self, x):
            return F.conv_transpose2d(self.conv(x), self.conv.weight)

    x = torch.randn(1, 3, 6, 6)
    with pytest.raises(ValueError, match="conv cannot.*used directly"):
        to_locally_connected(Tied(), x)
    tied = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3))
    tied[1].bias = tied[0].bias
    with pytest.raises(ValueError, match="bias is tied"):
        to_locally_connected(tied, x)


def test_an_unreached_convolution_is_named_even_if_the_model_cannot_train_on_the_sample():
    class Head(Small):
        def __init__(self):
            super().__init__()
            self.unused, self.head_norm = nn.Conv2d(3, 3, 1), nn.BatchNorm1d(4)

        def forward(self, x):
            return self.head_norm(super().forward(x))

    with pytest.warns(UserWarning, match="not reached.*unused"):
        to_locally_connected(Head(), torch.randn(1, 3, 8, 8))


@pytest.mark.parametrize("sample", [None, (1, 3, 8, 8), "image"])
def test_a_sample_that_is_no_input_is_refused(sample):
    with pytest.raises(TypeError, match="`sample_input` must be a tensor"):
        to_locally_connected(Small(), sample)


@pytest.mark.parametrize("inplace", [True, False])
def test_lazily_initialised_layers_are_refused_by_name_until_the_model_has_run(inplace):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    sample = torch.randn(2, 1, 9, 9)
    with pytest.raises(ValueError, match=r"^1 \(LazyConv2d\), 2 \(LazyBatchNorm2d\):.*model\(sample\)"):
        to_locally_connected(model, sample, inplace=inplace)
    model(sample)
    assert to_locally_connected(model, sample, inplace=inplace)[1].weight.shape == (5, 5, 4, 2, 3, 3)


def test_a_conversion_that_fails_in_place_leaves_an_earlier_ones_layout_as_it_was():
    class Reading(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.second, self.third = (
                LocallyConnected2d(3, 3, 3, input_size=8),
                nn.BatchNorm2d(3),
                LocallyConnected2d(3, 3, 3, input_size=6),
                nn.Conv2d(3, 3, 3),
            )

        def forward(self, x):
            assert self.third.kernel_size
            return self.third(self.second(self.norm(self.first(x)))) * self.third.transposed

    model = keep_layout(Reading(), torch.randn(2, 3, 8, 8))
    model.norm = nn.BatchNorm2d(3)
    assert model.first.position_major
    with pytest.raises(AttributeError, match="transposed"):
        to_locally_connected(model, torch.randn(2, 3, 8, 8), inplace=True)
    assert model.first.position_major
    assert type(model.norm) is nn.BatchNorm2d
    assert type(model.third) is nn.Conv2d
