"""What users rely on is there after ``import sleepconv`` alone, in a fresh process."""

import subprocess
import sys

import pytest

NAMES = [
    "functional.locally_connected2d",
    "functional.lateral_grids",
    "functional.share_weights_",
    "functional.weight_snr",
    "nn.LocallyConnected2d",
    "to_locally_connected",
    "to_convolutional",
    "Sleep",
    "learn_grids",
    "sleep.Instant",
    "sleep.Hebbian",
    "sleep.Circuit",
    "optim.share_gradients",
    "wake.without_weight_transport",
    "simulation.theory.fixed_point",
    "simulation.circuit.rate_fixed_point",
    "simulation.convergence",
    "simulation.euler.EulerCircuit",
    "simulation.robustness.Robustness",
    "functional.pooled_weight_snr",
    "models.resnet20",
    "models.resnet18",
    "brain.predictivity",
    "testing.assert_convolutional",
    "keep_freed_memory",
    "experiments.Run",
    "experiments.train",
    "experiments.paper.recipe",
    "experiments.data.load_task",
]


@pytest.mark.parametrize("first", ["simulation.theory.fixed_point", "experiments.Run", "sleep.Hebbian"])
def test_every_name_is_found_whichever_comes_first(first):
    code = "import sleepconv\n" + "\n".join(f"sleepconv.{name}" for name in [first, *NAMES])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
