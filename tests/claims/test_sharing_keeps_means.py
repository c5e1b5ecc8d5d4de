"""Section 4.1: sleep sets the weights of each grid to their mean."""

import torch

from sleepconv.functional import lateral_grids, share_weights_, weight_snr


def test_sharing_keeps_the_mean_of_each_grid():
    grids, weight = lateral_grids((9, 10), 3), torch.randn(9, 10, 4, 3, 3, 3, dtype=torch.float64)
    before = [weight[grids == number].mean(dim=0) for number in range(9)]
    share_weights_(weight, grids)
    for number in range(9):
        torch.testing.assert_close(weight[grids == number].mean(dim=0), before[number])
    assert weight_snr(weight, grids) == torch.inf


def test_sharing_twice_is_sharing_once():
    grids, weight = lateral_grids((9, 10), 3), torch.randn(9, 10, 5)
    once = share_weights_(weight, grids).clone()
    torch.testing.assert_close(share_weights_(weight, grids), once, rtol=1e-6, atol=0)
