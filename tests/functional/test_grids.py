"""Who shares with whom."""

import pytest
import torch

from sleepconv.functional import (
    adjusted_rand_index,
    interior_neurons,
    lateral_grids,
    leave_border_alone,
    output_size,
)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_3x3_layer_has_nine_grids_at_stride_one_and_two(stride):
    assert lateral_grids((16, 16), 3, stride).unique().tolist() == list(range(9))


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (1, 2), (4, 4), (7, 7)])
def test_1x1_layers_and_patch_embeddings_have_one_grid(kernel, stride):
    assert not lateral_grids((8, 8), kernel, stride).any()


def test_spacing_is_the_period_over_its_common_factor_with_the_stride():
    assert lateral_grids((8,), 6, 4).tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "size"), [(3, 1, 2, 12), (3, 1, 3, 20), (2, 1, 2, 9), (4, 3, 6, 30)]
)
def test_neurons_of_a_grid_see_a_repeated_pattern_alike_and_the_patterns_span_their_inputs(
    kernel, stride, dilation, size
):
    grids = lateral_grids((size,), kernel, stride, dilation)
    period = kernel * dilation if torch.gcd(torch.tensor(kernel), torch.tensor(dilation)) > 1 else kernel
    seen = torch.tensor([[(i * stride + u * dilation) % period for u in range(kernel)] for i in range(size)])
    for grid in grids.unique():
        assert len(seen[grids == grid].unique(dim=0)) == 1
    assert all(len(set(phases)) == kernel for phases in seen.tolist())


def test_a_period_overrides_the_layers_own():
    assert lateral_grids((6, 6), 1, period=3).unique().numel() == 9


def test_works_along_one_two_and_three_axes_with_a_period_each():
    assert lateral_grids((6,), 3).shape == (6,)
    assert lateral_grids((6, 6), (3, 2)).unique().numel() == 6
    assert lateral_grids((4, 4, 4), 2).unique().numel() == 8


@pytest.mark.parametrize(
    "arguments",
    [((0, 3), 3), ((3, 3, 3, 3), 3), ((4, 4), 0), ((4, 4), (3, 3, 3)), ((4, 4), 3, 0), ((4, 4), 3, 1, 0)],
)
def test_impossible_sizes_are_refused(arguments):
    with pytest.raises(ValueError, match="`output_size` must have|must be an int"):
        lateral_grids(*arguments)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [
        (3, 1, 1, 1),
        (3, 2, 1, 1),
        (5, 1, "same", 1),
        (4, 1, "same", 1),
        (3, 1, 2, 2),
        (3, 4, 5, 1),
        (1, 2, 1, 1),
        (3, 1, 0, 1),
    ],
)
@pytest.mark.parametrize("size", [4, 9, 10])
def test_the_interior_is_the_neurons_whose_windows_lie_inside_of_the_image(size, kernel, stride, padding, dilation):
    geometry = {"stride": stride, "padding": padding, "dilation": dilation}
    before = dilation * (kernel - 1) // 2 if padding == "same" else padding
    starts = [i * stride - before for i in range(output_size((size,), kernel, **geometry)[0])]
    inside = [i for i, start in enumerate(starts) if start >= 0 and start + dilation * (kernel - 1) < size]
    (interior,) = interior_neurons((size,), kernel, **geometry)
    assert list(range(len(starts))[interior]) == inside


def test_neurons_of_the_border_share_with_no_other_and_those_of_the_interior_as_before():
    grids = lateral_grids((7, 8), 3)
    alone = leave_border_alone(grids, (slice(1, 6), slice(2, 8)))
    assert torch.equal(alone[1:6, 2:], grids[1:6, 2:])
    counts = alone.flatten().bincount()
    assert counts[9:].tolist() == [1] * (56 - 30)


def test_the_adjusted_rand_index_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    for one, other in [(3, 3), (2, 5), (1, 4), (1, 1)]:
        first, second = torch.randint(one, (4, 10)), torch.randint(other, (4, 10))
        second[:2] = first[:2]
        expected = metrics.adjusted_rand_score(first.flatten(), second.flatten())
        assert adjusted_rand_index(first, second) == pytest.approx(expected)


def test_the_adjusted_rand_index_of_different_neurons_is_refused():
    with pytest.raises(ValueError, match=r"must have the same neurons, at least one, got \(3,\) and \(2,\)"):
        adjusted_rand_index(torch.zeros(3, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))
