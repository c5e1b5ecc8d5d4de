"""The checks that users can call."""

import math

import pytest
import torch
from torch import nn

from sleepconv import to_locally_connected
from sleepconv.nn import LocallyConnected1d, LocallyConnected2d, LocallyConnected3d
from sleepconv.sleep import Instant
from sleepconv.testing import assert_convolutional, assert_grid_equivariant


def test_shared_layer_commutes_with_shifts_by_the_spacing_but_not_by_one():
    layer = Instant()(LocallyConnected2d(2, 3, 3, input_size=(12, 14), padding=1))
    assert_grid_equivariant(layer)
    assert_grid_equivariant(layer, shifts=[3, 6, (3, 6)])
    for shift in (1, 2, 4, (1, 3)):
        with pytest.raises(AssertionError, match="should move the responses"):
            assert_grid_equivariant(layer, shifts=[shift])


def test_a_layer_that_has_not_slept_does_not_commute():
    with pytest.raises(AssertionError, match=r"shift by \(3, 0\) pixels"):
        assert_grid_equivariant(LocallyConnected2d(2, 3, 3, input_size=12))


def test_with_stride_the_shift_is_spacing_times_stride():
    layer = Instant()(LocallyConnected2d(2, 3, 3, input_size=17, stride=2, padding=1))
    assert_grid_equivariant(layer)
    assert_grid_equivariant(layer, shifts=6)
    with pytest.raises(AssertionError):
        assert_grid_equivariant(layer, shifts=2)
    with pytest.raises(ValueError, match="multiples of the stride"):
        assert_grid_equivariant(layer, shifts=3)


@pytest.mark.parametrize("kind", [LocallyConnected1d, LocallyConnected3d])
def test_shared_layers_of_one_and_three_dimensions_commute_by_the_spacing_but_not_by_one(kind):
    layer = Instant()(kind(2, 3, 3, input_size=9, padding=1))
    assert_grid_equivariant(layer)
    with pytest.raises(AssertionError, match="should move the responses"):
        assert_grid_equivariant(layer, shifts=1)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": (3, 2), "dilation": 2},
        {"kernel_size": 3, "dilation": 3},
        {"kernel_size": 4, "stride": 4},
        {"kernel_size": 4, "stride": 6, "padding": 3},
        {"kernel_size": 1},
        {"kernel_size": 3, "padding": "same", "padding_mode": "circular", "groups": 2},
    ],
)
def test_every_geometry_commutes_by_its_default_shifts_after_sleep(options):
    layer = LocallyConnected2d(2, 4, input_size=(40, 37), **options)
    with pytest.raises(AssertionError):
        assert_grid_equivariant(layer)
    assert_grid_equivariant(Instant()(layer))


def test_a_copied_convolution_commutes_with_every_shift():
    layer = LocallyConnected2d.from_conv2d(nn.Conv2d(2, 3, 3, padding=1), 9)
    assert_grid_equivariant(layer, shifts=[1, 2, (1, 2)])


def test_the_error_names_the_neurons_that_disagree():
    layer = LocallyConnected1d.from_conv1d(nn.Conv1d(1, 2, 3), 12)
    layer.weight.data[7, 1] += 1
    with pytest.raises(AssertionError, match=r"neurons \((7|10),\) and \((4|7),\), channel 1, differ by .* largest"):
        assert_grid_equivariant(layer)
    with pytest.raises(AssertionError, match=r"layer '' .* grid 1 the filter of neuron \(7,\) differs .* by 1,"):
        assert_convolutional(layer)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("neurons", [slice(None), 0, 5], ids=["all", "border", "interior"])
def test_filters_that_are_not_finite_do_not_pass(number, neurons):
    layer = Instant()(LocallyConnected1d(1, 2, 3, input_size=12, padding=1))
    layer.weight.data[neurons] = number
    with pytest.raises(AssertionError, match="weight of layer '' contains NaN or infinity"):
        assert_convolutional(layer)
    with pytest.raises(AssertionError, match="contain NaN or infinity"):
        assert_grid_equivariant(layer)


def test_responses_that_overflow_do_not_pass():
    layer = LocallyConnected1d(1, 2, 3, input_size=12)
    layer.weight.data.fill_(3e38)
    assert_convolutional(layer)
    with pytest.raises(AssertionError, match="responses of this layer .* contain NaN or infinity"):
        assert_grid_equivariant(layer)


def test_a_model_is_convolutional_after_sleep_and_the_error_names_the_layer_that_is_not():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3))
    model = to_locally_connected(model, torch.randn(1, 1, 12, 12))
    assert_convolutional(Instant()(model))
    model[2].weight.data[0, 0] *= 1 + 1e-3
    with pytest.raises(AssertionError, match="layer '2' is not convolutional"):
        assert_convolutional(model)
    assert_convolutional(model, tolerance=1e-2)


def test_checks_leave_the_random_state_alone():
    layer = Instant()(LocallyConnected1d(1, 2, 3, input_size=12))
    state = torch.get_rng_state()
    assert_grid_equivariant(layer)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(TypeError, match="got Conv2d"):
        assert_grid_equivariant(nn.Conv2d(1, 1, 3))
    with pytest.raises(ValueError, match="no locally connected layer"):
        assert_convolutional(nn.Conv2d(1, 1, 3))
    with pytest.raises(ValueError, match="nothing to compare"):
        assert_grid_equivariant(LocallyConnected2d(1, 1, 3, input_size=5))
    layer = LocallyConnected2d(1, 1, 3, input_size=9)
    with pytest.raises(ValueError, match="nothing to compare"):
        assert_grid_equivariant(layer, shifts=7)
    for shifts in (0, -3, [], [(3, 3, 3)]):
        with pytest.raises(ValueError, match="positive ints"):
            assert_grid_equivariant(layer, shifts=shifts)
