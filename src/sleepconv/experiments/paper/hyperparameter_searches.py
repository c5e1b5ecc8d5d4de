"""The hyperparameter searches of the appendix (Experimental details).

They are evaluated on the validation split, with compressed schedules.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from sleepconv.experiments.paper.recipes import recipe
from sleepconv.experiments.paper.rows import datasets_of, table_rows
from sleepconv.experiments.runs.run import Run

_Point = tuple[float, float]
_DECAYS = (1e-2, 1e-4)


def _points(learning_rates: Sequence[float], weight_decays: Sequence[float]) -> list[_Point]:
    return list(product(learning_rates, weight_decays))


_CIFAR_CONVOLUTIONAL = _points((1e-1, 5e-2, 1e-2, 5e-3), _DECAYS)
_CIFAR_LOCAL = _points((1e-3, 5e-4, 1e-4, 5e-5), _DECAYS)
_TINY_CONVOLUTIONAL = _points((5e-3, 1e-3, 5e-4), _DECAYS)
_TINY_LOCAL = _points((1e-3, 5e-4), _DECAYS)
_IMAGENET_CONVOLUTIONAL = _points((1e-3, 5e-4), (1e-2, 1e-4, 1e-6))
_IMAGENET_LOCAL = _points((1e-3, 5e-4, 1e-4, 5e-5), (1e-2,))
# "We only tested learning rate of 5e-4 for weight decay of 1e-2 as higher learning rates performed worse."
_IMAGENET_LOCAL_AFTER_FIRST = [point for point in _IMAGENET_CONVOLUTIONAL if point != (1e-3, 1e-2)]
_EPOCHS = {"cifar10": 200, "cifar100": 200, "tiny-imagenet": 50, "imagenet": 20}


def _points_of(run: Run) -> list[_Point]:
    """The learning rates and weight decays that the paper tried for a network on a dataset."""
    convolutional = run.connectivity == "convolutional"
    if run.dataset == "tiny-imagenet":
        return _TINY_CONVOLUTIONAL if convolutional else _TINY_LOCAL
    if run.dataset != "imagenet":
        return _CIFAR_CONVOLUTIONAL if convolutional else _CIFAR_LOCAL
    if run.connectivity == "local_after_first":
        return _IMAGENET_LOCAL_AFTER_FIRST
    return _IMAGENET_CONVOLUTIONAL if convolutional else _IMAGENET_LOCAL


def search_runs(name: str) -> list[Run]:
    """Return the runs that search a recipe's rates: trained without, evaluated on the validation split.

    >>> runs = search_runs("tiny_imagenet_local")
    >>> len(runs), runs[0].name, runs[0].epochs, runs[0].tuning
    (4, 'tiny_imagenet_local_grid_1e-03_1e-02', 50, True)
    """
    run = recipe(name)
    return [
        replace(
            run,
            name=f"{name}_grid_{rate:.0e}_{decay:.0e}",
            learning_rate=rate,
            weight_decay=decay,
            epochs=_EPOCHS[run.dataset],
            tuning=True,
        )
        for rate, decay in _points_of(run)
    ]


def _tuned(table: int, dataset: str) -> list[str]:
    """The rows that the paper tuned: with the first layer convolutional only LC and LC - ws(1)."""
    untuned = ("first_convolutional_sleep_every_10", "first_convolutional_sleep_every_100")
    return [name for row, name in table_rows(table, dataset).items() if row not in untuned]


SEARCHES: dict[str, Callable[[], list[Run]]] = {
    f"{name}_grid": partial(search_runs, name)
    for table in (1, 4, 6, 13)
    for dataset in datasets_of(table)
    for name in _tuned(table, dataset)
}
"""Every search by name: ``cifar10_local_grid`` tunes ``cifar10_local``."""
