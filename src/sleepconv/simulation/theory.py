"""Closed forms of dynamic weight sharing: where weights and rates converge to, and how well neurons then share.

Throughout, w has one row per neuron, C is the mean of x xᵀ over the input patterns, γ the ``decay`` and α the
``inhibition``.
"""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from sleepconv.functional import weight_snr
from sleepconv.functional.sizes import check_finite


def fixed_point(
    initial_weights: Float[Tensor, "*batch neurons inputs"],
    covariance: Float[Tensor, "*#batch inputs inputs"],
    *,
    decay: float,
    inhibition: float | None = None,
) -> Float[Tensor, "*batch neurons inputs"]:
    r"""Return the weights that the Hebbian rule converges to.

    .. math:: w_i^* = (C + \gamma I)^{-1} (C \mu^{init} + \gamma\, w_i^{init})

    Eq. 5 of Pogodin et al. (2021). With finite inhibition the biased form of the appendix, in which the mean
    shrinks to :math:`\mu^* = \gamma (C / (1 + \alpha) + \gamma I)^{-1} \mu^{init}` and

    .. math:: w_i^* = (C + \gamma I)^{-1} (\tfrac{\alpha}{1 + \alpha} C \mu^* + \gamma\, w_i^{init}).

    Along directions in which there are no inputs, and if γ is zero, the weights stay initial.

    >>> fixed_point(torch.tensor([[0.0], [2.0]]), torch.eye(1), decay=1.0).flatten().tolist()
    [0.5, 1.5]
    """
    _check_decay_and_inhibition(decay, inhibition)
    variances, directions = _spectrum(covariance)
    weights = initial_weights.double() @ directions
    mean = weights.mean(dim=-2, keepdim=True)
    variances = variances.unsqueeze(-2)
    if inhibition is not None:
        mean = (inhibition / (1 + inhibition)) * mean * _share(decay, variances / (1 + inhibition))
    kept = _share(decay, variances)
    return (((1 - kept) * mean + kept * weights) @ directions.mT).to(initial_weights.dtype)


def fixed_point_white(
    initial_weights: Float[Tensor, "*batch neurons inputs"], *, decay: float, inhibition: float | None = None
) -> Float[Tensor, "*batch neurons inputs"]:
    r"""Return the weights that the rule converges to when C = I, as the appendix prints them.

    .. math:: w_i^* = \frac{1}{1 + \gamma} \mu^{init} + \frac{\gamma}{1 + \gamma} w_i^{init}
        \quad\text{or, biased,}\quad
        w_i^* = \frac{\gamma}{1 + \gamma}
        \Big(\frac{\alpha}{1 + \gamma (1 + \alpha)} \mu^{init} + w_i^{init}\Big)

    >>> fixed_point_white(torch.tensor([[0.0], [2.0]]), decay=1.0).flatten().tolist()
    [0.5, 1.5]
    """
    _check_decay_and_inhibition(decay, inhibition)
    mean = initial_weights.mean(dim=-2, keepdim=True)
    if inhibition is None:
        return (mean + decay * initial_weights) / (1 + decay)
    return decay / (1 + decay) * (inhibition / (1 + decay * (1 + inhibition)) * mean + initial_weights)


def least_negative_log_snr(
    initial_weights: Float[Tensor, "neurons inputs"],
    covariance: Float[Tensor, "inputs inputs"],
    *,
    decay: float,
    inhibition: float | None = None,
) -> float:
    """Return −log SNR (Eq. 6) at the fixed point: with perfect inhibition, the least that learning reaches.

    >>> round(least_negative_log_snr(torch.tensor([[0.0], [2.0]]), torch.eye(1), decay=1.0), 4)
    -1.3863
    """
    weights = fixed_point(initial_weights.double(), covariance, decay=decay, inhibition=inhibition)
    return -math.log(float(weight_snr(weights)))


def least_negative_log_snr_white(*, decay: float) -> float:
    r"""Return :math:`2 \log(\gamma / (1 + \gamma))`, the paper's least −log SNR.

    It holds for C = I and many neurons whose weights come from N(1, 1).

    >>> round(least_negative_log_snr_white(decay=0.01), 2)
    -9.23
    """
    _check_decay_and_inhibition(decay)
    return 2 * math.log(decay / (1 + decay)) if decay > 0 else -math.inf


def rate_eigenvalues(*, inhibition: float, tau_ms: float) -> Complex[Tensor, "3"]:
    r"""Return the growth rates (per ms) of Eq. 8 around its fixed point, Eq. 9; none is positive, so it is stable.

    Differences between neurons decay with :math:`-1 / \tau`; their mean and the inhibitory neuron swing with
    :math:`(-1 \pm i \sqrt{\alpha}) / \tau`.

    >>> rate_eigenvalues(inhibition=4.0, tau_ms=1.0).tolist()
    [(-1+0j), (-1+2j), (-1-2j)]
    """
    check_finite("inhibition", inhibition, least=0)
    check_finite("tau_ms", tau_ms)
    if tau_ms <= 0:
        raise ValueError(f"`tau_ms` must be above 0, got {tau_ms}")
    swing = math.sqrt(inhibition)
    return torch.tensor([-1, complex(-1, swing), complex(-1, -swing)], dtype=torch.complex128) / tau_ms


def noisy_fixed_point(
    initial_weights: Float[Tensor, "neurons inputs"],
    covariance: Float[Tensor, "inputs inputs"],
    *,
    decay: float,
    noise: float,
) -> Float[Tensor, "neurons inputs"]:
    r"""Return the weights that the mean dynamics converge to if neuron i sees :math:`x + \xi_i`.

    .. math:: (C + (\gamma + s) I)\, w_i = C \mu + \gamma\, w_i^{init}, \qquad
        \mu = \frac{\gamma}{\gamma + s} \mu^{init}, \qquad s = \sigma^2 (1 - 1/N)

    The noise ξ has the variance σ² per input. The distance from Eq. 5 is the floor that learning rates of order 1/t
    come down to.

    Args:
        noise: the standard deviation σ.

    >>> noisy_fixed_point(torch.tensor([[0.0], [2.0]]), torch.eye(1), decay=1.0, noise=1.0)
    tensor([[0.2667],
            [1.0667]])
    """
    _check_decay_and_inhibition(decay)
    check_finite("noise", noise, least=0)
    if noise > 0 and decay == 0:
        raise ValueError("`decay` must be above 0 if inputs are noisy: otherwise the noise shrinks all weights to 0")
    variances, directions = _spectrum(covariance)
    neurons = initial_weights.shape[-2]
    pull = noise**2 * (1 - 1 / neurons)
    weights = initial_weights.double() @ directions
    mean = weights.mean(dim=-2, keepdim=True) * _share(decay, torch.tensor(pull, dtype=torch.float64))
    settled = (variances * mean + decay * weights) / (variances + decay + pull)
    return (settled @ directions.mT).to(initial_weights.dtype)


def steady_response(
    excitation: Float[Tensor, "*batch inhibitory neurons"], inhibition: Float[Tensor, "*batch neurons inhibitory"]
) -> Float[Tensor, "*batch neurons neurons"]:
    r"""Return the matrix M that takes drives to settled rates of linear neurons: :math:`r - b = M z`.

    .. math:: M = (I + A E)^{-1}

    E are the connections to inhibitory neurons, A those back, as in ``sleepconv.simulation.euler``. With one inhibitory
    neuron, E = 1/N and A = α this is Eq. 9.

    >>> steady_response(torch.full((1, 2), 0.5), torch.full((2, 1), 3.0))
    tensor([[ 0.6250, -0.3750],
            [-0.3750,  0.6250]])
    """
    return torch.linalg.inv(torch.eye(inhibition.shape[-2]).to(inhibition) + inhibition @ excitation)


def lateral_fixed_point(
    initial_weights: Float[Tensor, "*batch neurons inputs"],
    covariance: Float[Tensor, "inputs inputs"],
    response: Float[Tensor, "*#batch neurons neurons"],
    *,
    decay: float,
    noise: float = 0.0,
    same_input: Bool[Tensor, "*#batch neurons neurons"] | None = None,
) -> Float[Tensor, "*batch neurons inputs"]:
    r"""Return where the mean dynamics end with any lateral connections: :math:`r - b = M z` in place of Eq. 7.

    .. math:: W^* v = \gamma\, (\lambda\, M \circ S + \sigma^2 \operatorname{diag} M + \gamma I)^{-1}\, W^{init} v
        \qquad\text{for } C v = \lambda v

    S is 1 for neurons that see the same input and 0 for those whose inputs are independent. Eq. 5, its biased form and
    ``noisy_fixed_point`` are special cases. Not in the paper.

    Args:
        initial_weights: w^init.
        covariance: C of each input.
        response: M, such as ``steady_response`` returns, or I minus the lateral connections of Eq. 4.
        decay: γ, above 0.
        noise: standard deviation σ of what each neuron sees in each input beside the pattern.
        same_input: S; by default all neurons see the same input.

    >>> weights, equalised = torch.tensor([[0.0], [2.0]]), torch.eye(2) - 0.5
    >>> lateral_fixed_point(weights, torch.eye(1), equalised, decay=1.0).flatten().tolist()
    [0.5, 1.5]
    """
    _check_decay_and_inhibition(decay, None)
    check_finite("noise", noise, least=0)
    if decay == 0:
        raise ValueError("`decay` must be above 0, got 0")
    variances, directions = _spectrum(covariance)
    response = response.double()
    seen = response if same_input is None else response * same_input
    eye = torch.eye(response.shape[-1], dtype=torch.float64)
    rest = noise**2 * response * eye + decay * eye
    pulls = variances[:, None, None] * seen.unsqueeze(-3) + rest.unsqueeze(-3)
    if float(torch.linalg.eigvals(pulls).real.min()) <= 0:
        raise ValueError("the weights do not settle: `response` has an eigenvalue that is too negative for this decay")
    weights = (initial_weights.double() @ directions).mT.unsqueeze(-1)
    settled = decay * torch.linalg.solve(pulls, weights).squeeze(-1).mT
    return (settled @ directions.mT).to(initial_weights.dtype)


def noisy_error_bound(
    initial_weights: Float[Tensor, "neurons inputs"],
    covariance: Float[Tensor, "inputs inputs"],
    rates: Iterable[float],
    *,
    decay: float,
    noise: float,
    fourth_moment: float,
) -> Float[Tensor, "steps"]:
    r"""Bound the expected squared distance from Eq. 5 after each step, by the noisy theorem's recursion.

    .. math:: e_{k+1} = (1 - \gamma \eta_k + a \eta_k^2)\, e_k + 2 \eta_k \sigma^2 \|W^*\|^2
        + \eta_k^2 (a \|W^*\|^2 + 4 \gamma^2 \|W^{init}\|^2), \qquad a = 8 (2 c + \gamma^2)

    with :math:`e_0 = \|W^{init} - W^*\|_F^2`. The appendix prints the noise term without its factor 2 and the
    theorem without the square on the initial distance; both are corrected here.

    Args:
        fourth_moment: c, at least the mean of :math:`\|x + \xi\|^4`.

    >>> weights, rates = torch.tensor([[0.0], [2.0]]), [0.0]
    >>> noisy_error_bound(weights, torch.eye(1), rates, decay=1.0, noise=0.0, fourth_moment=1.0).tolist()
    [0.5, 0.5]
    """
    check_finite("noise", noise, least=0)
    check_finite("fourth_moment", fourth_moment, least=0)
    settled = fixed_point(initial_weights.double(), covariance, decay=decay)
    settled_norm, initial_norm = float(settled.square().sum()), float(initial_weights.double().square().sum())
    growth = 8 * (2 * fourth_moment + decay**2)
    errors = [float((initial_weights - settled).square().sum())]
    for rate in rates:
        check_finite("rates", rate, least=0)
        kept = (1 - decay * rate + growth * rate**2) * errors[-1]
        scatter = rate**2 * (growth * settled_norm + 4 * decay**2 * initial_norm)
        errors.append(kept + 2 * rate * noise**2 * settled_norm + scatter)
    return torch.tensor(errors, dtype=torch.float64)


def _share(decay: float, variance: Tensor) -> Tensor:
    """Return γ / (γ + variance), and 1 where both are zero: without inputs nothing moves."""
    return torch.where(variance + decay > 0, decay / (variance + decay), 1.0)


def _spectrum(covariance: Tensor) -> tuple[Tensor, Tensor]:
    symmetric = covariance.shape[-1] == covariance.shape[-2] and torch.allclose(covariance, covariance.mT)
    if not symmetric:
        raise ValueError(
            "`covariance` must be a symmetric square matrix, the mean of x xᵀ over the input patterns, got one of "
            f"shape {tuple(covariance.shape)} that differs from its transpose"
        )
    variances, directions = torch.linalg.eigh(covariance.double())
    rounding = 1e3 * torch.finfo(covariance.dtype).eps * variances.abs().amax()
    if variances.min() < -rounding:
        raise ValueError(
            "`covariance` must be positive semidefinite, the mean of x xᵀ over the input patterns, got one with the "
            f"eigenvalue {variances.min():.3g}"
        )
    return variances.clamp(min=0), directions


def _check_decay_and_inhibition(decay: float, inhibition: float | None = None) -> None:
    check_finite("decay", decay, least=0)
    if inhibition is not None:
        check_finite("inhibition", inhibition, least=0, or_else="None for perfect inhibition")
