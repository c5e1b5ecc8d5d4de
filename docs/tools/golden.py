"""What the page's modules must reproduce: ``python docs/tools/golden.py``.

Writes ``tests/explore/golden.json``, inputs and results of the package's functions, and ``docs/explore/digits.js``, the
digits of ``sleepconv demo``. Both are checked in; the tests write them again and compare.
"""

import base64
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sleepconv.experiments.data import digits
from sleepconv.functional import hebbian_step_, lateral_grids, share_weights_, weight_snr
from sleepconv.simulation.circuit import (
    CircuitConstants,
    CircuitState,
    euler_rates,
    paper_learning_rate,
    present_each_,
    rate_fixed_point,
)
from sleepconv.simulation.theory import fixed_point, least_negative_log_snr, noisy_fixed_point

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/explore/golden.json"
DIGITS = ROOT / "docs/explore/digits.js"

Case = dict[str, Any]


def golden() -> dict[str, list[Case]]:
    """Every case, as lists of numbers."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return {
        "grids": [
            _grids(size, kernel=kernel, stride=stride, dilation=dilation, period=period)
            for size in [(7,), (6, 12), (3, 4, 5)]
            for kernel, stride, dilation, period in [
                (1, 1, 1, None),
                (3, 1, 1, None),
                (3, 2, 1, None),
                (3, 3, 1, None),
                (4, 2, 2, None),
                (5, 1, 1, 3),
                (9, 1, 1, None),
            ]
        ],
        "sharing": [
            _sharing(normal(6, 12, 4), lateral_grids((6, 12), 3)),
            _sharing(normal(5, 2), lateral_grids((5,), 2)),
        ],
        "snr": [
            _snr(1 + normal(10, 9)),
            _snr(1 + normal(7, 4), lateral_grids((7,), 3)),
            _snr(1 + normal(8, 4).mul(1e-6), lateral_grids((8,), 3)),
            _snr(torch.ones(4, 2, dtype=torch.float64)),
        ],
        "hebbian": [
            _hebbian(1 + normal(5, 9), normal(20, 1, 9), rate=5e-3, decay=0.01, momentum=0.95),
            _hebbian(1 + normal(5, 4), normal(6, 3, 4), rate=0.05, decay=0.1, inhibition=10.0),
            _hebbian(
                1 + normal(4, 9), normal(8, 1, 9), normal(8, 4, 1, 9).mul(0.3), rate=0.02, decay=0.1, momentum=0.5
            ),
            _hebbian(1 + normal(3, 4), normal(4, 2, 4), normal(4, 3, 2, 4).mul(0.1), rate=0.1, decay=0.0),
        ],
        "fixed_point": [
            _fixed_point(1 + normal(6, 9), covariance, decay=decay, inhibition=inhibition)
            for covariance in (
                torch.eye(9, dtype=torch.float64),
                torch.eye(9, dtype=torch.float64) + 1,
                _gram(normal(20, 9)),
            )
            for decay, inhibition in [(0.1, None), (0.001, None), (0.01, 10.0)]
        ]
        + [_fixed_point(1 + normal(4, 5), _gram(normal(2, 5)), decay=1e-3, inhibition=None)],
        "noisy_fixed_point": [
            _noisy_fixed_point(1 + normal(6, 9), covariance, decay=decay, noise=noise)
            for covariance in (torch.eye(9, dtype=torch.float64), _gram(normal(20, 9)))
            for decay, noise in [(0.01, 0.1), (1.0, 0.3), (0.001, 0.0)]
        ],
        "rates": [
            _rates(normal(5), CircuitConstants()),
            _rates(normal(8).mul(3), CircuitConstants(inhibition=2.0, tau_ms=20.0, bias=0.5)),
        ],
        "presentations": [
            _presentations(1 + normal(6, 9), normal(12, 9), decay=0.01, constants=CircuitConstants()),
            _presentations(
                1 + normal(4, 4),
                normal(5, 4),
                decay=0.1,
                constants=CircuitConstants(inhibition=3.0, tau_ms=20.0, bias=2.0, momentum=0.5),
            ),
        ],
    }


def _grids(size: tuple[int, ...], *, kernel: int, stride: int, dilation: int, period: int | None) -> Case:
    numbers = lateral_grids(size, kernel, stride, dilation, period=period).flatten().tolist()
    return {"size": size, "kernel": kernel, "stride": stride, "dilation": dilation, "period": period, "grids": numbers}


def _sharing(weight: Tensor, grids: Tensor) -> Case:
    case = {"weight": _flat(weight), "grids": grids.flatten().tolist()}
    return case | {"shared": _flat(share_weights_(weight, grids))}


def _snr(weight: Tensor, grids: Tensor | None = None) -> Case:
    numbers = [0] * len(weight) if grids is None else grids.tolist()
    snr = float(weight_snr(weight, grids))
    return {"weight": _flat(weight), "grids": numbers, "snr": "Infinity" if snr == float("inf") else snr}


def _hebbian(weight: Tensor, patterns: Tensor, noise: Tensor | None = None, **options: Any) -> Case:
    case: Case = {"weight": _flat(weight), "patterns": patterns.tolist(), "options": options}
    case["noise"] = None if noise is None else [_flat(step) for step in noise]
    weight = weight.clone()[None, :, None]
    velocity, initial = torch.zeros_like(weight), weight.clone()
    for step, shown in enumerate(patterns):
        seen = None if noise is None else noise[step][None]
        hebbian_step_(weight, velocity, initial, shown[None], noise=seen, **options)
    return case | {"after": _flat(weight), "velocity": _flat(velocity)}


def _fixed_point(weight: Tensor, covariance: Tensor, *, decay: float, inhibition: float | None) -> Case:
    settled = fixed_point(weight, covariance, decay=decay, inhibition=inhibition)
    least = least_negative_log_snr(weight, covariance, decay=decay, inhibition=inhibition)
    case = {"weight": _flat(weight), "neurons": len(weight), "covariance": _flat(covariance), "decay": decay}
    return case | {"inhibition": inhibition, "settled": _flat(settled), "negative_log_snr": least}


def _noisy_fixed_point(weight: Tensor, covariance: Tensor, *, decay: float, noise: float) -> Case:
    settled = noisy_fixed_point(weight, covariance, decay=decay, noise=noise)
    case = {"weight": _flat(weight), "neurons": len(weight), "covariance": _flat(covariance), "decay": decay}
    return case | {"noise": noise, "settled": _flat(settled)}


def _rates(drive: Tensor, constants: CircuitConstants) -> Case:
    rates, inhibitory = euler_rates(drive, steps=60, constants=constants)
    settled = rate_fixed_point(drive, inhibition=constants.inhibition, bias=constants.bias)
    case = {"drive": _flat(drive), "constants": _named(constants), "settled": _flat(settled)}
    return case | {"rates": rates[::20].tolist(), "inhibitory": _flat(inhibitory[::20])}


def _presentations(weight: Tensor, patterns: Tensor, *, decay: float, constants: CircuitConstants) -> Case:
    case: Case = {
        "weight": _flat(weight),
        "patterns": patterns.tolist(),
        "decay": decay,
        "constants": _named(constants),
    }
    state, decays = CircuitState.at_rest(weight[None, :, None]), torch.tensor([decay]).double()
    for _ in present_each_(state, patterns[:, None], rate=paper_learning_rate, decay=decays, constants=constants):
        pass
    case |= {"after": _flat(state.weight), "velocity": _flat(state.velocity)}
    return case | {"above_bias": _flat(state.above_bias), "inhibitory": float(state.inhibitory)}


def _named(constants: CircuitConstants) -> Case:
    return {
        "inhibition": constants.inhibition,
        "tauMs": constants.tau_ms,
        "bias": constants.bias,
        "stepMs": constants.step_ms,
        "presentationMs": constants.presentation_ms,
        "momentum": constants.momentum,
    }


def _gram(patterns: Tensor) -> Tensor:
    return patterns.T @ patterns / len(patterns)


def _flat(tensor: Tensor) -> list[float]:
    numbers: list[float] = tensor.flatten().tolist()
    return numbers


def digits_module() -> str:
    """The digits as a JavaScript module: two pixels in a byte, so that the brightest level, 16, becomes 15."""
    train, test = (images.take(torch.arange(len(images))) for images in (digits(train=True), digits(train=False)))
    levels = torch.cat([train[0], test[0]]).flatten().double().mul(16 / 255).round().clamp(max=15).to(torch.uint8)
    packed = base64.b64encode((levels[0::2] * 16 + levels[1::2]).numpy().tobytes()).decode()
    labels = "".join(str(label) for label in torch.cat([train[1], test[1]]).tolist())
    return (
        "/** scikit-learn's 8×8 digits, split as `sleepconv demo` does; written by docs/tools/golden.py. */\n"
        f"export const TRAINING_DIGITS = {len(train[1])};\n"
        f'export const LABELS = "{labels}";\n'
        f'export const PIXELS = "{packed}";\n'
    )


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden()) + "\n")
    DIGITS.write_text(digits_module())
    for path in (GOLDEN, DIGITS):
        print(path.relative_to(ROOT), f"{path.stat().st_size:,} bytes")
