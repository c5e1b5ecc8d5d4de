"""Section 4.2: the inhibitory circuit's only fixed point is Eq. 9, and it is stable."""

import pytest
import torch

from sleepconv.simulation.circuit import CircuitConstants, euler_rates, rate_fixed_point


@pytest.mark.parametrize("inhibition", [0.0, 1.0, 10.0])
def test_steady_rates_are_those_of_equation_9(inhibition):
    drive = 1 + torch.randn(3, 100, dtype=torch.float64)
    rates, inhibitory = euler_rates(drive, steps=1500, constants=CircuitConstants(inhibition=inhibition))
    expected = rate_fixed_point(drive, inhibition=inhibition, bias=1.0)
    torch.testing.assert_close(rates[-1], expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(inhibitory[-1], drive.mean(dim=-1, keepdim=True) / (1 + inhibition), rtol=0, atol=1e-6)


def test_strong_inhibition_leaves_bias_plus_the_difference_from_the_mean():
    drive = torch.randn(50, dtype=torch.float64)
    rates = rate_fixed_point(drive, inhibition=1e9, bias=1.0)
    torch.testing.assert_close(rates, 1 + drive - drive.mean(), rtol=0, atol=1e-6)
