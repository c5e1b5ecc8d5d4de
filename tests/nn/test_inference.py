"""The way back: equal outputs, few weights, and a warning or an error where that cannot be."""

import io
import warnings

import pytest
import torch
from torch import nn

import sleepconv
from sleepconv import to_convolutional, to_grid_convolutional, to_locally_connected, to_per_patch
from sleepconv.nn import GridConvolution, LocallyConnected1d, LocallyConnected2d, LocallyConnected3d, PerPatchLinear
from sleepconv.sleep import Instant

X = torch.randn(3, 3, 16, 16)


def bytes_of(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.tell()


@pytest.fixture(scope="module")
def slept():
    """A convolution, the network without its weight sharing, and that network after a sleep."""
    conv = sleepconv.models.resnet8()
    for _ in range(2):
        conv(X)  # running statistics away from their start
    return conv.eval(), Instant()(to_locally_connected(conv, X)).eval()


def test_a_slept_network_as_grid_convolutions_has_its_outputs(slept):
    _, local = slept
    for images in (X, X[:1]):
        with torch.no_grad():
            expected = local(images)
            torch.testing.assert_close(to_grid_convolutional(local)(images), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(to_grid_convolutional(local)(images), expected, rtol=1e-5, atol=1e-5)


def test_its_file_is_at_most_nine_times_the_convolutions(slept):
    conv, local = slept
    compact = bytes_of(to_grid_convolutional(local))
    assert compact < 9 * bytes_of(conv)
    assert compact < bytes_of(local) / 4  # small images have few neurons per grid


def test_it_loads_its_file_and_runs_on_larger_images(slept):
    compact = to_grid_convolutional(slept[1])
    other = to_grid_convolutional(Instant()(to_locally_connected(sleepconv.models.resnet8(), X))).eval()
    other.load_state_dict(compact.state_dict())
    assert torch.equal(other(X), compact(X))
    assert other(torch.randn(1, 3, 32, 32)).shape == (1, 10)


def test_one_filter_for_a_slept_network_is_another_network_and_is_reported(slept):
    with pytest.warns(UserWarning, match=r"changes what the network computes: in \d of 9 layers.*by \d\d%"):
        averaged = to_convolutional(slept[1])
    assert (averaged(X) - slept[1](X)).abs().max() > 1e-3  # a hundred times what equal outputs may differ


def test_filters_that_all_agree_become_one_without_a_warning(slept):
    shared = Instant(period=1)(to_locally_connected(slept[0], X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        conv = to_convolutional(shared)
    torch.testing.assert_close(conv(X), shared(X), rtol=1e-4, atol=1e-5)
    assert {m.spacing for m in to_grid_convolutional(shared).modules() if isinstance(m, GridConvolution)} == {(1, 1)}


OPTIONS = [
    (LocallyConnected1d, {"stride": 2, "padding": 2, "groups": 2}),
    (LocallyConnected2d, {"padding": "same", "bias": "neuron"}),
    (LocallyConnected2d, {"padding": 2, "padding_mode": "reflect", "dilation": 2}),
    (LocallyConnected2d, {"bias": False, "dilation": (1, 3), "stride": (1, 2)}),
    (LocallyConnected3d, {"padding": (0, 1, 2), "padding_mode": "circular", "stride": (2, 1, 3)}),
]


@pytest.mark.parametrize(("kind", "options"), OPTIONS, ids=lambda value: getattr(value, "__name__", None))
def test_every_kind_of_layer_keeps_its_outputs(kind, options):
    size = (10, 9, 8)[-kind.axes :]
    layer = Instant()(kind(2, 4, 3, input_size=size, **options))
    compact, x = to_grid_convolutional(layer), torch.randn(2, 2, *size)
    torch.testing.assert_close(compact(x), layer(x), rtol=1e-5, atol=1e-5)
    assert compact.weight.numel() < layer.weight.numel()
    assert ("padding_mode" in repr(compact)) == ("padding_mode" in options)


def test_tokens_become_an_ordinary_linear_layer():
    tokens = torch.randn(2, 9, 4)
    local = Instant()(to_per_patch(nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4)), tokens))
    compact = to_grid_convolutional(local)
    assert type(compact[0]) is nn.Linear
    torch.testing.assert_close(compact(tokens), local(tokens), rtol=1e-5, atol=1e-5)


def test_what_did_not_share_is_refused_with_the_difference():
    fresh = LocallyConnected2d(2, 4, 3, input_size=12, padding=1)
    with pytest.raises(
        ValueError, match=r"layer '0': filters of one grid differ by [\d.]+ of the.*Instant\(\)\(model\)"
    ):
        to_grid_convolutional(nn.Sequential(fresh))
    with pytest.raises(ValueError, match="only its border does not share"):
        to_grid_convolutional(Instant(border="interior")(fresh))
    with pytest.raises(ValueError, match="filters of one grid differ"):
        to_grid_convolutional(PerPatchLinear(4, 4, num_patches=5))
    close = Instant()(fresh)
    with torch.no_grad():
        close.weight[0, 0] *= 1.001
    with pytest.raises(ValueError, match="the tolerance is 1e-06"):
        to_grid_convolutional(close)
    with pytest.raises(ValueError, match="differ by .* the tolerance is 0;"):
        to_grid_convolutional(close, tolerance=0)
    assert to_grid_convolutional(close, tolerance=1e-2).spacing == (3, 3)


def test_frozen_layers_hooks_and_what_is_registered_stay():
    model = nn.Sequential(Instant()(LocallyConnected2d(2, 4, 3, input_size=12)))
    model[0].requires_grad_(False).register_buffer("mask", torch.ones(1))
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    compact = to_grid_convolutional(model)
    compact(torch.randn(1, 2, 12, 12))
    assert calls
    assert not compact[0].weight.requires_grad
    assert list(compact.state_dict()) == list(model.state_dict())
    assert isinstance(model[0], LocallyConnected2d)
    assert to_grid_convolutional(model, inplace=True) is model
    assert isinstance(model[0], GridConvolution)


def test_bad_arguments_are_errors():
    with pytest.raises(ValueError, match="`kernel_size` must have one to three ints"):
        GridConvolution(1, 1, 3, spacing=3)
    with pytest.raises(ValueError, match="padding_mode"):
        GridConvolution(1, 1, (3, 3), spacing=3, padding_mode="mirror")
    with pytest.raises(ValueError, match="tolerance"):
        to_grid_convolutional(nn.Linear(1, 1), tolerance=-1)
