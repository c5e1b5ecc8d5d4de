import math

import pytest
import torch

from sleepconv.functional import lateral_grids, pooled_weight_snr, share_weights_, weight_snr
from sleepconv.nn import LocallyConnected1d, LocallyConnected2d, PerPatchLinear


def test_snr_is_squared_mean_over_variance_averaged_over_weights():
    weight = torch.tensor([[1.0, 4.0], [3.0, 8.0]])
    assert weight_snr(weight) == (2**2 / 1 + 6**2 / 4) / 2


def test_in_a_layer_the_snr_is_the_average_over_its_grids():
    grids = lateral_grids((7, 8), 3)
    weight = 1 + torch.randn(7, 8, 3, 2, dtype=torch.float64)
    by_grid = [weight_snr(weight[grids == number]) for number in range(9)]
    torch.testing.assert_close(weight_snr(weight, grids), torch.stack(by_grid).mean())


def test_the_pooled_snr_is_the_sum_of_squared_means_over_the_sum_of_variances_in_all_grids():
    grids = lateral_grids((7, 8), 3)
    weight = 1 + torch.randn(7, 8, 3, 2, dtype=torch.float64)
    of_grids = [weight[grids == number] for number in range(9)]
    signal = sum(filters.mean(dim=0).square().sum() for filters in of_grids)
    noise = sum(filters.var(dim=0, correction=0).sum() for filters in of_grids)
    torch.testing.assert_close(pooled_weight_snr(weight, grids), signal / noise)


def test_the_pooled_snr_is_not_dominated_by_one_weight_that_all_neurons_share():
    weight = torch.tensor([[1.0, 4.0, 5.0], [3.0, 4.0, 5.0]])
    assert weight_snr(weight) == math.inf
    assert pooled_weight_snr(weight) == 45
    assert pooled_weight_snr(torch.ones(4, 3)) == math.inf


def test_grids_with_one_neuron_are_left_out():
    weight = torch.tensor([[1.0], [77.0], [3.0]])
    assert pooled_weight_snr(weight, torch.tensor([0, 1, 0])) == pooled_weight_snr(weight[::2])
    assert weight_snr(weight, torch.tensor([0, 1, 0])) == weight_snr(weight[::2])


def test_filters_that_agree_have_infinite_snr():
    weight = torch.randn(3).expand(5, 3).clone()
    assert weight_snr(weight) == math.inf
    assert weight_snr(torch.zeros(5, 3)) == math.inf
    shared = share_weights_(torch.randn(8, 8, 4), lateral_grids((8, 8), 3))
    assert weight_snr(shared, lateral_grids((8, 8), 3)) == math.inf


def test_snr_is_right_for_nearly_equal_weights_in_single_precision():
    weight = 1 + 1e-3 * torch.randn(12, 12, 50, dtype=torch.float64)
    grids = lateral_grids((12, 12), 3)
    single = weight_snr(weight.float(), grids).double()
    torch.testing.assert_close(single, weight_snr(weight, grids), rtol=1e-3, atol=0)


def test_snr_maps_over_many_runs_at_once():
    weight = 1 + torch.randn(4, 10, 6)
    one_by_one = torch.stack([weight_snr(run) for run in weight])
    torch.testing.assert_close(torch.vmap(weight_snr)(weight), one_by_one)


def test_a_variance_needs_two_neurons():
    with pytest.raises(ValueError, match="at least two neurons"):
        weight_snr(torch.randn(1, 4))
    with pytest.raises(ValueError, match="one neuron"):
        weight_snr(torch.randn(3, 3, 4), lateral_grids((3, 3), 3))


@pytest.mark.parametrize(
    "layer", [LocallyConnected2d(2, 4, 3, input_size=9), PerPatchLinear(5, 3, num_patches=6)], ids=lambda m: str(m)[:10]
)
def test_the_snr_of_a_layer_is_that_of_its_weight_within_its_grids(layer):
    assert weight_snr(layer) == weight_snr(layer.weight, layer.grids)
    whole_layer = torch.zeros_like(layer.grids)
    assert weight_snr(layer, whole_layer) == weight_snr(layer.weight, whole_layer)


@pytest.mark.parametrize(
    "layer", [LocallyConnected1d(2, 4, 3, input_size=9), LocallyConnected2d(2, 4, 3, input_size=9)]
)
def test_the_weight_of_a_locally_connected_layer_without_its_grids_is_an_error_that_says_what_to_call(layer):
    with pytest.raises(ValueError, match=r"call weight_snr\(layer\) or weight_snr\(layer.weight, layer.grids\)"):
        weight_snr(layer.weight)


def test_the_weight_of_a_per_patch_layer_without_its_grids_is_taken_as_one_grid():
    layer = PerPatchLinear(5, 3, num_patches=6)
    torch.testing.assert_close(weight_snr(layer.weight), weight_snr(layer))


def test_a_module_without_grids_is_an_error_that_names_it():
    with pytest.raises(TypeError, match="got Conv2d"):
        weight_snr(torch.nn.Conv2d(3, 4, 3))
