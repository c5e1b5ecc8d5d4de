"""The paper's networks."""

import pytest
import torch
from torch import nn

from sleepconv.models import resnet18, resnet20


def convolutions(model):
    return [module for module in model.modules() if isinstance(module, nn.Conv2d)]


def test_resnet20_has_twenty_layers_and_two_1x1_shortcuts_of_stride_two():
    model = resnet20()
    shortcuts = [conv for conv in convolutions(model) if conv.kernel_size == (1, 1)]
    assert len(convolutions(model)) + 1 == 20 + len(shortcuts)
    assert [(conv.stride, conv.out_channels) for conv in shortcuts] == [((2, 2), 32), ((2, 2), 64)]
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    assert resnet20(num_classes=200)(torch.randn(2, 3, 48, 48)).shape == (2, 200)


@pytest.mark.parametrize("stem", ["7x7", "3x3"])
def test_resnet18_has_the_papers_widths_and_the_chosen_stem(stem):
    model = resnet18(stem=stem)
    assert [s[-1].conv2.out_channels for s in model.stages] == [32, 64, 128, 256]
    assert model.conv1.kernel_size == (int(stem[0]),) * 2
    assert model(torch.randn(1, 3, 64, 64)).shape == (1, 1000)
    assert {c.kernel_size for c in convolutions(model)[1:]} == {(3, 3), (1, 1)}


@pytest.mark.parametrize("model", [resnet20(), resnet18()])
def test_convolutions_have_no_bias_and_start_from_kaiming_normal_fan_out(model):
    for conv in convolutions(model):
        assert conv.bias is None
        fan_out = conv.out_channels * conv.kernel_size[0] ** 2
        assert conv.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.1)


def test_an_unknown_stem_is_refused():
    with pytest.raises(ValueError, match="stem"):
        resnet18(stem="5x5")
