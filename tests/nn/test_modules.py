"""The layer as a module."""

import copy
import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from sleepconv.nn import LocallyConnected1d, LocallyConnected2d, LocallyConnected3d

LAYERS = {
    1: (LocallyConnected1d, nn.Conv1d),
    2: (LocallyConnected2d, nn.Conv2d),
    3: (LocallyConnected3d, nn.Conv3d),
}


def from_convolution(conv, size):
    axes = len(conv.kernel_size)
    return getattr(LAYERS[axes][0], f"from_conv{axes}d")(conv, size)


@pytest.mark.parametrize("axes", LAYERS)
@pytest.mark.parametrize("padding_mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [1, "same"])
def test_copies_a_convolution_with_all_its_options(axes, padding_mode, padding):
    conv = LAYERS[axes][1](4, 6, 2, padding=padding, dilation=2, groups=2, padding_mode=padding_mode)
    size = (5, 6, 7)[:axes]
    x = torch.randn(3, 4, *size)
    local = from_convolution(conv, size)
    torch.testing.assert_close(local(x), conv(x))
    back = getattr(local, f"to_conv{axes}d")()
    assert repr(back) == repr(conv)
    torch.testing.assert_close(back.weight, conv.weight)
    torch.testing.assert_close(back.bias, conv.bias)


def test_to_conv2d_has_the_mean_filter():
    layer = LocallyConnected2d(3, 4, 3, input_size=5, bias="neuron")
    conv = layer.to_conv2d()
    torch.testing.assert_close(conv.weight, layer.weight.mean((0, 1)))
    torch.testing.assert_close(conv.bias, layer.bias.mean((1, 2)))


def test_weights_start_from_the_papers_distribution_independently_per_neuron():
    layer = LocallyConnected2d(16, 32, 3, input_size=16, padding=1)
    assert layer.weight.std().item() == pytest.approx((2 / (32 * 9)) ** 0.5, rel=0.01)
    assert layer.weight.mean((0, 1)).std().item() < 0.1 * layer.weight.std().item()


def test_init_noise_starts_from_one_shared_filter():
    layer = LocallyConnected2d(16, 32, 3, input_size=16, padding=1, init_noise=0.1)
    expected = (2 / (32 * 9)) ** 0.5
    assert layer.weight.std((0, 1)).mean().item() == pytest.approx(0.1 * expected, rel=0.05)
    assert layer.weight.mean((0, 1)).std().item() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("bias", "shape"), [(True, (4,)), ("shared", (4,)), ("neuron", (4, 5, 6)), (False, None)])
def test_bias_is_shared_over_space_or_one_per_neuron(bias, shape):
    layer = LocallyConnected2d(3, 4, 3, input_size=(5, 6), padding=1, bias=bias)
    assert (None if layer.bias is None else layer.bias.shape) == shape
    if shape:
        torch.testing.assert_close(
            layer(torch.zeros(1, 3, 5, 6))[0], layer.bias.view(4, *(shape[1:] or (1, 1))).expand(4, 5, 6)
        )


def test_state_dict_goes_round_and_copies_are_independent():
    layer, other = (LocallyConnected2d(3, 4, 3, input_size=6, bias="neuron") for _ in range(2))
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    x = torch.randn(2, 3, 6, 6)
    assert torch.equal(layer(x), other(x))
    clone = copy.deepcopy(layer)
    clone.weight.data.zero_()
    assert layer.weight.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_trains_in_every_floating_dtype(dtype):
    layer = LocallyConnected2d(3, 4, 3, input_size=6, dtype=dtype)
    y = layer(torch.randn(2, 3, 6, 6, dtype=dtype))
    y.sum().backward()
    assert y.dtype == layer.weight.grad.dtype == dtype


def test_compiles_without_a_graph_break_and_exports_with_any_batch():
    layer = LocallyConnected2d(3, 4, 3, input_size=6, padding=1)
    x = torch.randn(2, 3, 6, 6)
    compiled = torch.compile(layer, fullgraph=True)
    loss = compiled(x).square().sum()
    loss.backward()
    gradient, layer.weight.grad = layer.weight.grad, None
    layer(x).square().sum().backward()
    torch.testing.assert_close(gradient, layer.weight.grad)
    exported = torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
    more = torch.randn(5, 3, 6, 6)
    torch.testing.assert_close(exported(more), layer(more))


def test_compiles_with_pytorch_2_6_whose_export_does_not_tell_that_it_traces(monkeypatch):
    monkeypatch.delattr("torch.export._trace.custom_triton_ops_decomposition_disabled")
    layer = LocallyConnected2d(3, 4, 3, input_size=6)
    x = torch.randn(2, 3, 6, 6)
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager", fullgraph=True)(x), layer(x))


def test_optimizers_update_the_weight_with_fused_adamw():
    layer = LocallyConnected2d(3, 4, 3, input_size=6)
    before = layer.weight.detach().clone()
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    layer(torch.randn(2, 3, 6, 6)).sum().backward()
    optimizer.step()
    assert (layer.weight != before).all()


def test_repr_says_sizes_and_what_differs_from_the_default():
    layer = LocallyConnected2d(
        4, 8, 3, input_size=(5, 6), padding="same", groups=2, bias="neuron", padding_mode="circular"
    )
    assert repr(layer) == (
        "LocallyConnected2d(4, 8, kernel_size=(3, 3), input_size=(5, 6), output_size=(5, 6), stride=(1, 1), "
        "padding='same', groups=2, bias=neuron, padding_mode='circular')"
    )


def test_responses_can_be_viewed():
    layer = LocallyConnected2d(3, 4, 3, input_size=6)
    assert layer(torch.randn(2, 3, 6, 6)).view(2, -1).shape == (2, 64)


class ChangedInPlace(nn.Module):
    """The operations in place that a convolution allows right behind it."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.relu = layer, nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.layer(x)
        y += x
        return self.relu(self.layer(y))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("position_major", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_responses_can_be_changed_in_place_as_a_convolutions_can(bias, position_major, compiled):
    conv = nn.Conv2d(3, 3, 3, padding=1, bias=bias).double()
    layer = LocallyConnected2d.from_conv2d(conv, 6)
    layer.position_major = position_major
    local = ChangedInPlace(layer)
    for shape in ((2, 3, 6, 6), (3, 6, 6)):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        run = torch.compile(local, backend="aot_eager", fullgraph=True) if compiled else local
        ours, theirs = run(x), ChangedInPlace(conv)(x)
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(torch.autograd.grad(ours.sum(), x), torch.autograd.grad(theirs.sum(), x))


def test_a_saved_program_loads_where_sleepconv_alone_is_imported(tmp_path):
    layer, x = LocallyConnected2d(2, 3, 3, input_size=5), torch.randn(2, 2, 5, 5)
    torch.export.save(torch.export.export(layer, (x,)), tmp_path / "layer.pt2")
    torch.save((x, layer(x)), tmp_path / "expected.pt")
    program = (
        "import sleepconv, sys; assert 'torch' not in sys.modules; import torch; x, y = torch.load('expected.pt');"
        "torch.testing.assert_close(torch.export.load('layer.pt2').module()(x), y)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_before_pytorch_is_imported_its_loader_answers_as_without_sleepconv():
    program = (
        "import sleepconv, sys, copy, importlib.util; loader = importlib.util.find_spec('torch').loader;"
        "assert 'torch' not in sys.modules; assert loader.is_package('torch'); loader.get_code('torch');"
        "assert 'import' in copy.copy(loader).get_source('torch'); assert not hasattr(loader, 'nothing')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"groups": 3}, "`in_channels` .4. must be divisible by `groups` .3."),
        ({"in_channels": 0}, "`in_channels` must be an int, at least 1, got 0"),
        ({"padding_mode": "mirror"}, "`padding_mode` must be one of"),
        ({"bias": "yes"}, "`bias` must be one of"),
        ({"kernel_size": 0}, "`kernel_size` must be an int"),
        ({"kernel_size": 9}, "smaller than a filter"),
        ({"input_size": (6, 6, 6)}, "input_size"),
    ],
)
def test_impossible_layers_are_refused(change, says):
    options = {"in_channels": 4, "out_channels": 4, "kernel_size": 3, "input_size": 6} | change
    with pytest.raises(ValueError, match=says):
        LocallyConnected2d(**options)


def test_an_input_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"inputs of size \(6, 6\), but got shape \(2, 3, 7, 6\)"):
        LocallyConnected2d(3, 4, 3, input_size=6)(torch.zeros(2, 3, 7, 6))


def test_another_kind_of_module_is_refused():
    with pytest.raises(TypeError, match="expected a Conv2d, got Linear"):
        LocallyConnected2d.from_conv2d(nn.Linear(3, 3), 6)


def test_numpy_integers_and_the_input_keyword_work_as_for_a_convolution():
    layer = LocallyConnected2d(3, 4, np.int64(3), input_size=np.array([6, 6]), stride=np.int64(2))
    assert layer(input=torch.randn(2, 3, 6, 6)).shape == (2, 4, 2, 2)


def test_a_filter_as_large_as_its_input_needs_little_memory():
    layer = LocallyConnected1d(2, 2, 3000, input_size=3000)
    x = torch.randn(2, 2, 3000, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad[0], layer.weight[0].sum(0))


def test_meta_tensors_give_the_shape():
    layer = LocallyConnected2d(3, 4, 3, input_size=8, device="meta")
    assert layer(torch.empty(2, 3, 8, 8, device="meta")).shape == (2, 4, 6, 6)
