"""Sections 4.1 and A.1: sleep brings the weights of each grid to their mean, which stays."""

import torch

from sleepconv.functional import hebbian_step_, lateral_grids, share_weights_, weight_snr


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


def test_hebbian_learning_keeps_the_mean_of_its_neurons():
    weight = torch.randn(1, 20, 3, 9, dtype=torch.float64)
    initial, velocity = weight.clone(), torch.zeros_like(weight)
    for _ in range(60):
        hebbian_step_(weight, velocity, initial, torch.randn(1, 1, 9).double(), rate=0.01, decay=0.1, momentum=0.9)
    assert (weight - initial).abs().max() > 0.5
    torch.testing.assert_close(weight.mean(dim=1), initial.mean(dim=1))
