"""The cost of a training step without weight transport: ``python -m sleepconv.experiments.bench.wake_cost``.

A step is all that a run does for one batch: forward and backward pass, AdamW and, where there is one, the sleep.
"""

import sys
from typing import Any, get_args

from sleepconv.experiments.bench.measure import race
from sleepconv.experiments.bench.steps import one_step, random_task
from sleepconv.experiments.paper.rows import WAKE_RULES
from sleepconv.experiments.results.sheets import Sheet
from sleepconv.experiments.runs import Run
from sleepconv.experiments.runs.run import Wake
from sleepconv.experiments.training.learner import Learner
from sleepconv.experiments.training.parallel import Place
from sleepconv.memory import keep_freed_memory

_CONNECTIVITIES: dict[str, dict[str, Any]] = {
    "conv": {"connectivity": "convolutional"},
    "LC": {"connectivity": "local"},
    "LC - ws(1)": {"connectivity": "local", "sleep_every": 1},
    "LC - ws(10)": {"connectivity": "local", "sleep_every": 10},
}
_STEPS = 10  # per measurement: at ws(10), one sleep and one mirror phase


def wake_cost(rounds: int = 4) -> Sheet:
    """Measure the time of ten steps of ResNet8 on 16×16 images, batch 512, by each rule, as ratios."""
    keep_freed_memory()
    task = random_task(side=16)
    rules = get_args(Wake)
    rows = {rule: [WAKE_RULES[rule]] for rule in rules if rule != "backprop"}
    for network in _CONNECTIVITIES.values():
        contenders = {}
        for rule in rules:
            run = Run("bench", "cifar10-16x16", learning_rate=1e-3, network="resnet8", **network).changed(wake=rule)
            learner = Learner(run, task, Place(), steps_per_epoch=10**9)
            step = one_step(learner, task)
            contenders[rule] = lambda step=step: [step() for _ in range(_STEPS)]
        seconds = race(contenders, rounds)
        for rule, cells in rows.items():
            cells.append(f"{seconds[rule] / seconds['backprop']:.2f}")
    return Sheet("A training step ÷ backpropagation", ["", *_CONNECTIVITIES], list(rows.values()))


if __name__ == "__main__":
    sys.stdout.write(wake_cost().markdown() + "\n")
