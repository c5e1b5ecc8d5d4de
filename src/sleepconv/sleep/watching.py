"""Watch rules while layers sleep: −log SNR step by step, and the covariance of the patterns that drive each layer.

A rule that learns in steps calls ``notice`` after each of them; ``watch`` collects what it is told.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import log
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sleepconv.curves import Curve, negative_log
from sleepconv.functional.measures import weight_snr
from sleepconv.functional.sizes import check_int
from sleepconv.simulation.theory import fixed_point
from sleepconv.sleep.layers import sleeping_layers, unwrapped
from sleepconv.sleep.pools import Pool

_Weight = Float[Tensor, "groups neurons channels inputs"]
_Patterns = Float[Tensor, "groups patterns inputs"]
_WATCHERS: ContextVar[tuple[Callable[[Pool, _Weight, _Patterns | None], None], ...]] = ContextVar(
    "watchers", default=()
)


def watched() -> bool:
    """Return whether anyone watches, so that a rule need not prepare what nobody looks at.

    >>> watched()
    False
    """
    return bool(_WATCHERS.get())


def notice(pool: Pool, weight: _Weight, patterns: _Patterns | None = None) -> None:
    """Tell those who watch that a pool has these weights: at the start, and after each step, which had these patterns.

    >>> pool = Pool([], (), torch.ones(1, 2, 1, 3))
    >>> notice(pool, pool.weight)
    """
    for watcher in _WATCHERS.get():
        watcher(pool, weight, patterns)


@contextmanager
def watch(model: nn.Module, *, covariance: bool = False, every: int = 1) -> "Iterator[dict[str, Course]]":
    """Watch the layers of a model while it sleeps; works in any loop, with ``Sleep`` or with a rule that is called.

    ``Hebbian``, ``Circuit`` and ``NetworkCircuit`` can be watched; ``Instant`` and ``Lateral`` do not learn in steps. A
    layer that sleeps again starts again, so its last sleep counts. Patterns that pass through a network in batches, as
    the grids of a wide layer do, are measured after each batch.

    Args:
        model: the model that sleeps.
        covariance: also collect the covariance of the patterns, as large as the square of a filter for each grid.
        every: measure −log SNR after every so many steps, since that takes about as long as a step.

    Returns:
        a dictionary that fills with the course of each layer that sleeps, by name.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> from sleepconv.sleep import Hebbian
    >>> layer = LocallyConnected2d(1, 4, 3, input_size=9)
    >>> with watch(layer) as courses:
    ...     layer = Hebbian(decay=1e-2, patterns="independent", steps=20)(layer)
    >>> curve = courses[""].curve()
    >>> curve.steps[-1], curve.values[-1] < curve.values[0]
    (20, True)
    """
    check_int("every", every)
    names = {id(layer): name for name, layer in sleeping_layers(unwrapped(model)).items()}
    courses: dict[str, Course] = {}

    def watcher(pool: Pool, weight: _Weight, patterns: _Patterns | None) -> None:
        if (name := names.get(id(pool.layer))) is not None:
            if name not in courses or courses[name].has_ended(pool):
                courses[name] = Course(covariance, every)
            courses[name].add(pool, weight, patterns)

    token = _WATCHERS.set((*_WATCHERS.get(), watcher))
    try:
        yield courses
    finally:
        _WATCHERS.reset(token)


class Course:
    """How one layer slept: its pools, which are the neurons of its grids, step by step.

    >>> Course().curve()
    Curve(steps=[], values=[])
    """

    def __init__(self, covariance: bool = False, every: int = 1) -> None:
        self._collects, self._every = covariance, every
        self._pools: dict[tuple[Any, ...], _PoolCourse] = {}

    def has_ended(self, pool: Pool) -> bool:
        """Return whether this pool belongs to another sleep."""
        known = self._pools.get(pool.phase)
        return known is not None and known.pool is not pool

    def add(self, pool: Pool, weight: _Weight, patterns: _Patterns | None) -> None:
        """Take down what ``notice`` was told."""
        if pool.phase not in self._pools:
            self._pools[pool.phase] = _PoolCourse(pool, weight if self._collects else None)
        self._pools[pool.phase].add(weight, patterns, self._every, self._collects)

    def curve(self, *, pooled: bool = False) -> Curve:
        """Return −log SNR (Eq. 6, averaged over grids) before the first step and after each; a grid that is done stays.

        Args:
            pooled: return log(Σ variance / Σ mean²) instead, which a few dead weights do not decide.
        """
        courses = list(self._pools.values())
        steps = sorted({step for course in courses for step in course.steps})
        measure = _pooled if pooled else _mean
        return Curve(steps, [measure([course.at(step) for course in courses]) for step in steps])

    @property
    def covariance(self) -> Float[Tensor, "grids groups inputs inputs"]:
        """C, the mean of x xᵀ over the patterns so far, for each grid, if ``watch`` was asked to collect it."""
        if not self._collects:
            raise ValueError("the covariance was not collected; use watch(model, covariance=True)")
        return torch.stack([course.products / max(1, course.patterns) for course in self._pools.values()])

    def predicted(self, *, decay: float, inhibition: float | None = None) -> float:
        """Return the −log SNR at which Eq. 5 says that the layer settles, from its weights before and the covariance.

        Args:
            decay: γ.
            inhibition: α; None means perfect inhibition.
        """
        settled = []
        for course, covariance in zip(self._pools.values(), self.covariance, strict=True):
            assert course.initial is not None
            weights = course.initial.transpose(1, 2)
            ends = fixed_point(weights, covariance[:, None], decay=decay, inhibition=inhibition)
            settled.append(_moments(ends.transpose(1, 2)))
        return _mean(settled)


class _PoolCourse:
    def __init__(self, pool: Pool, initial: _Weight | None) -> None:
        self.pool = pool
        self.initial = None if initial is None else initial.detach().double().clone()
        self.steps: list[int] = []
        self.moments: list[tuple[float, float, float]] = []
        self.step, self.patterns, self.products = 0, 0, torch.zeros(())

    def add(self, weight: _Weight, patterns: _Patterns | None, every: int, collects: bool) -> None:
        self.step += patterns is not None
        if self.step % every == 0:
            self.steps.append(self.step)
            self.moments.append(_moments(weight))
        if collects and patterns is not None:
            self.products = self.products + torch.bmm(patterns.mT, patterns).double().cpu()
            self.patterns += patterns.shape[1]

    def at(self, step: int) -> tuple[float, float, float]:
        """Return the moments at a step, or the last ones before it."""
        return self.moments[bisect_right(self.steps, step) - 1]


def _moments(weight: _Weight) -> tuple[float, float, float]:
    """Return the SNR of a pool, the sum of its means² and that of its variances."""
    neurons_first = weight.movedim(1, 0).flatten(1)
    variance, mean = torch.var_mean(neurons_first, dim=0, correction=0)
    return float(weight_snr(neurons_first)), float(mean.square().sum()), float(variance.sum())


def _mean(moments: list[tuple[float, float, float]]) -> float:
    return negative_log(sum(snr for snr, _, _ in moments) / len(moments))


def _pooled(moments: list[tuple[float, float, float]]) -> float:
    means, variances = (sum(part) for part in list(zip(*moments, strict=True))[1:])
    return log(variances / means) if variances and means else negative_log(float("inf") if means else 0.0)
