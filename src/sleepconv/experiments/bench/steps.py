"""Cost of a training run: an epoch with data, sleep and evaluation, the loop itself, checkpoints, resuming."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from sleepconv.experiments.bench.measure import race
from sleepconv.experiments.bench.peers import training_step
from sleepconv.experiments.data import Batches, ChannelStatistics, Images, Task, TensorSource, Translate
from sleepconv.experiments.runs import Run
from sleepconv.experiments.training import build_network, evaluate
from sleepconv.experiments.training.checkpoints import Checkpoints
from sleepconv.experiments.training.learner import Learner
from sleepconv.experiments.training.parallel import Place

_STEPS_OF_AN_EPOCH = 98
_TRAINED, _TESTED = 10, 2  # batches per measurement; an epoch has 98 and 20
_BATCH = 512
_RUNS = {
    "convolution": Run("bench", "cifar10", "convolutional", 1e-2),
    "sleepconv": Run("bench", "cifar10", "local", 1e-3, sleep_every=1),
}


def training_cost(rounds: int) -> dict[str, float]:
    """Measure the cost of training as ratios, and resuming in seconds."""
    task = random_task()
    learners = {name: Learner(run, task, Place(), steps_per_epoch=_STEPS_OF_AN_EPOCH) for name, run in _RUNS.items()}
    parts = race({name: _part_of_an_epoch(learner, task) for name, learner in learners.items()}, rounds)
    sleepless = Learner(_RUNS["sleepconv"].changed(sleep_every=None), task, Place(), steps_per_epoch=10**9)
    bare = training_step(build_network(sleepless.run, task.input_size, 10), _BATCH)
    steps = race({"loop": one_step(sleepless, task), "bare": bare}, 3 * rounds)
    epoch = parts["sleepconv"] * _STEPS_OF_AN_EPOCH / _TRAINED
    written, read = _checkpoint(learners["sleepconv"])
    return {
        "epoch ÷ convolution": parts["sleepconv"] / parts["convolution"],
        "loop ÷ bare step": steps["loop"] / steps["bare"],
        "checkpoint ÷ epoch": written / epoch,
        "seconds to go on": read,
    }


def random_task(side: int = 32) -> Task:
    """Return a task of random images."""
    pixels = torch.randint(256, (_TRAINED * _BATCH, 3, side, side), dtype=torch.uint8)
    images = Images(pixels, torch.randint(10, (len(pixels),)), tuple("0123456789"))
    statistics = ChannelStatistics((128.0,) * 3, (64.0,) * 3)
    moved, still = (Translate.after_padding(n, size=(side, side), statistics=statistics) for n in (4, 0))
    return Task("random", images.classes, (3, side, side), TensorSource(images, moved), TensorSource(images, still))


def _part_of_an_epoch(learner: Learner, task: Task) -> Callable[[], None]:
    batches, tests = (Batches(source, batch_size=_BATCH) for source in (task.train, task.evaluation))

    def run() -> None:
        for inputs, labels in batches.epoch(0):
            learner.learn(inputs, labels, _BATCH)
        evaluate(learner.model, tests.epoch(0, start=_TRAINED - _TESTED))

    return run


def one_step(learner: Learner, task: Task) -> Callable[[], None]:
    """Return a function that takes the next training step."""
    batches = Batches(task.train, batch_size=_BATCH)
    endless = (batch for epoch in range(10**6) for batch in batches.epoch(epoch))
    return lambda: learner.learn(*next(endless), _BATCH) and None


def _checkpoint(learner: Learner) -> tuple[float, float]:
    """Return the seconds to write a checkpoint, and to read and load it."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        checkpoints, start = Checkpoints(Path(folder)), time.perf_counter()
        checkpoints.write(learner.step, *learner.state())
        written = time.perf_counter() - start
        found = checkpoints.newest(print)
        assert found is not None
        learner.load(*found[1:])
        return written, time.perf_counter() - start - written
