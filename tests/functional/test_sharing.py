import pytest
import torch

from sleepconv.functional import (
    grid_sums,
    hebbian_step_,
    lateral_grids,
    leave_border_alone,
    set_grids_,
    share_weights_,
)
from sleepconv.kernels.lattice import grid_indices

LATTICES = [
    lateral_grids((7,), 3),
    lateral_grids((7, 5), 3),
    lateral_grids((8, 8), (3, 2), stride=2),
    lateral_grids((4, 5, 6), 2),
    torch.zeros(9, dtype=torch.int64),
]
IRREGULAR = [
    torch.tensor([0, 0, 1, 0, 1]),
    torch.tensor([[0, 1, 1], [1, 0, 0]]),
    torch.tensor([5, 2, 5, 2, 2]),
    leave_border_alone(lateral_grids((9, 10), 3), (slice(1, 8), slice(2, 10))),
    leave_border_alone(lateral_grids((5, 6, 7), 2), (slice(1, 4), slice(1, 5), slice(0, 7))),
]


def means_one_by_one(weight: torch.Tensor, grids: torch.Tensor) -> torch.Tensor:
    shared = weight.clone()
    for number in grids.unique():
        shared[grids == number] = weight[grids == number].mean(dim=0)
    return shared


@pytest.mark.parametrize("grids", LATTICES + IRREGULAR, ids=lambda grids: str(tuple(grids.shape)))
def test_each_filter_becomes_the_mean_of_its_grid(grids):
    weight = torch.randn(*grids.shape, 4, 3, dtype=torch.float64)
    expected = means_one_by_one(weight, grids)
    torch.testing.assert_close(share_weights_(weight, grids), expected, rtol=1e-14, atol=1e-14)


def test_a_lattice_numbered_in_any_order_is_shared_alike():
    grids = lateral_grids((9, 9), 3)
    renamed = torch.tensor([4, 8, 1, 0, 3, 7, 2, 6, 5])[grids]
    weight = torch.randn(9, 9, 2)
    torch.testing.assert_close(share_weights_(weight.clone(), renamed), share_weights_(weight.clone(), grids))


def test_parameters_and_strided_views_are_shared_in_place():
    parameter = torch.nn.Parameter(torch.randn(6, 6, 2))
    storage = parameter.data_ptr()
    assert share_weights_(parameter, lateral_grids((6, 6), 3)) is parameter
    assert parameter.data_ptr() == storage
    assert parameter.grad_fn is None
    view = torch.randn(2, 6, 6).permute(1, 2, 0)
    expected = means_one_by_one(view, lateral_grids((6, 6), 3))
    torch.testing.assert_close(share_weights_(view, lateral_grids((6, 6), 3)), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients_through_weights_that_have_been_shared_since_are_an_error_as_after_any_change_in_place(dtype):
    weight = torch.randn(6, 6, 2, dtype=dtype, requires_grad=True)
    old_response = weight.square().sum()
    share_weights_(weight, lateral_grids((6, 6), 3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        old_response.backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_averaged_in_single_precision(dtype):
    weight = (1 + torch.rand(3000, 1)).to(dtype)
    expected = weight.double().mean().to(dtype)
    assert share_weights_(weight, torch.zeros(3000, dtype=torch.int64))[0, 0] == expected


def test_parts_of_a_layer_add_up_to_the_whole():
    grids, weight = lateral_grids((8, 5), 3), torch.randn(8, 5, 2, dtype=torch.float64)
    whole, neurons = grid_sums(weight, grids)
    parts = [grid_sums(weight[rows], grids[rows], number=9) for rows in (slice(0, 2), slice(2, 8))]
    torch.testing.assert_close(parts[0][0] + parts[1][0], whole)
    assert torch.equal(parts[0][1] + parts[1][1], neurons)


@pytest.mark.parametrize("grids", LATTICES + IRREGULAR, ids=lambda grids: str(tuple(grids.shape)))
def test_indices_reach_each_neuron_of_a_grid_once_in_the_order_of_memory(grids):
    places = torch.arange(grids.numel()).reshape(grids.shape)
    for number, indices in grid_indices(grids):
        reached = torch.cat([places[index].flatten() for index in indices])
        assert torch.equal(reached, places[grids == number])


def test_each_grid_of_a_layer_whose_border_stays_has_one_strided_index():
    grids = leave_border_alone(lateral_grids((9, 10), 3), (slice(1, 8), slice(2, 10)))
    indices = dict(grid_indices(grids))
    assert all(len(index) == 1 for index in indices.values())
    assert indices[0] == [(slice(3, 7, 3), slice(3, 10, 3))]


def test_setting_grids_writes_each_grid_its_filter():
    grids = torch.tensor([[0, 1, 1], [1, 0, 0]])
    written = set_grids_(torch.zeros(2, 3, 1), grids, torch.tensor([[3.0], [4.0]]))
    assert torch.equal(written[..., 0], 3.0 + grids)


def test_grids_without_company_are_an_error_that_says_what_to_do():
    weight = torch.randn(3, 3, 2)
    before = weight.clone()
    with pytest.raises(ValueError, match="nothing to share"):
        share_weights_(weight, lateral_grids((3, 3), 3))
    assert torch.equal(weight, before)


def test_grids_of_another_layer_are_an_error_that_names_both_sizes():
    with pytest.raises(ValueError, match=r"\(4, 4\), but grids covers \(5, 4\)"):
        share_weights_(torch.randn(4, 4, 2), lateral_grids((5, 4), 3))


@pytest.mark.parametrize("inhibition", [None, 4.0])
@pytest.mark.parametrize("noisy", [False, True])
def test_a_hebbian_step_is_the_update_written_with_loops(inhibition, noisy):
    grids, neurons, channels, inputs, patterns = 2, 4, 3, 5, 6
    weight, velocity, initial = torch.randn(3, grids, neurons, channels, inputs, dtype=torch.float64)
    pattern = torch.randn(grids, patterns, inputs, dtype=torch.float64)
    noise = torch.randn(grids, neurons, patterns, inputs, dtype=torch.float64) * noisy
    decay = torch.tensor([0.1, 0.3], dtype=torch.float64)
    strength = 1.0 if inhibition is None else inhibition / (1 + inhibition)

    expected_velocity = 0.9 * velocity
    for g in range(grids):
        for c in range(channels):
            for m in range(patterns):
                seen = pattern[g, m] + noise[g, :, m]
                responses = (weight[g, :, c] * seen).sum(dim=1)
                pull = (responses - strength * responses.mean())[:, None] * seen
                expected_velocity[g, :, c] += pull / patterns
            expected_velocity[g, :, c] += decay[g] * (weight[g, :, c] - initial[g, :, c])
    expected = weight - 0.05 * expected_velocity

    options = {"rate": 0.05, "decay": decay, "momentum": 0.9, "inhibition": inhibition}
    hebbian_step_(weight, velocity, initial, pattern, noise=noise if noisy else None, **options)
    torch.testing.assert_close(velocity, expected_velocity)
    torch.testing.assert_close(weight, expected)


@pytest.mark.parametrize(
    ("weight", "grids", "error", "says"),
    [
        (torch.tensor([[1], [2]]), torch.tensor([0, 0]), TypeError, "`weight` must have a floating point dtype"),
        (torch.ones(2, 1), torch.tensor([0.0, 0.0]), TypeError, "`grids` must have the dtype torch.int64"),
        (torch.ones(2, 1), torch.tensor([0, -1]), ValueError, "`grids` must not be negative, got -1"),
    ],
)
def test_numbers_of_the_wrong_kind_are_refused(weight, grids, error, says):
    with pytest.raises(error, match=says):
        share_weights_(weight, grids)
