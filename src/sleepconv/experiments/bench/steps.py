"""What a whole run costs: an epoch with data, sleep and evaluation, the loop itself, checkpoints, going on."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from sleepconv.experiments.bench.measure import race
from sleepconv.experiments.bench.peers import training_step
from sleepconv.experiments.data import Batches, Images, Statistics, Task, TensorSource, Translate
from sleepconv.experiments.runs import Run
from sleepconv.experiments.training import build_network, evaluate
from sleepconv.experiments.training.checkpoints import Checkpoints
from sleepconv.experiments.training.learner import Learner
from sleepconv.experiments.training.parallel import Place

STEPS_OF_AN_EPOCH, TEST_BATCHES_OF_AN_EPOCH = 98, 20
TRAINED, TESTED = 10, 2  # nearly the same proportion
BATCH = 512
RUNS = {
    "convolution": Run("bench", "cifar10", "convolutional", 1e-2),
    "sleepconv": Run("bench", "cifar10", "local", 1e-3, sleep_every=1),
}


def training_cost(rounds: int) -> dict[str, float]:
    """Ratios, but for the seconds that going on takes."""
    task = _random_task()
    learners = {name: Learner(run, task, Place(), steps_per_epoch=STEPS_OF_AN_EPOCH) for name, run in RUNS.items()}
    parts = race({name: _part_of_an_epoch(learner, task) for name, learner in learners.items()}, rounds)
    sleepless = Learner(RUNS["sleepconv"].changed(sleep_every=None), task, Place(), steps_per_epoch=10**9)
    bare = training_step(build_network(sleepless.run, task.input_size, 10), BATCH)
    steps = race({"loop": _one_step(sleepless, task), "bare": bare}, 3 * rounds)
    epoch = parts["sleepconv"] * STEPS_OF_AN_EPOCH / TRAINED
    written, read = _checkpoint(learners["sleepconv"])
    return {
        "epoch ÷ convolution": parts["sleepconv"] / parts["convolution"],
        "loop ÷ bare step": steps["loop"] / steps["bare"],
        "checkpoint ÷ epoch": written / epoch,
        "seconds to go on": read,
    }


def _random_task() -> Task:
    pixels = torch.randint(256, (TRAINED * BATCH, 3, 32, 32), dtype=torch.uint8)
    images = Images(pixels, torch.randint(10, (len(pixels),)), tuple("0123456789"))
    statistics = Statistics((128.0,) * 3, (64.0,) * 3)
    moved, still = (Translate.after_padding(n, size=(32, 32), statistics=statistics) for n in (4, 0))
    return Task("random", images.classes, (3, 32, 32), TensorSource(images, moved), TensorSource(images, still))


def _part_of_an_epoch(learner: Learner, task: Task) -> Callable[[], None]:
    batches, tests = (Batches(source, batch_size=BATCH) for source in (task.train, task.evaluation))

    def run() -> None:
        for inputs, labels in batches.epoch(0):
            learner.learn(inputs, labels, BATCH)
        evaluate(learner.model, tests.epoch(0, start=TRAINED - TESTED))

    return run


def _one_step(learner: Learner, task: Task) -> Callable[[], None]:
    batches = Batches(task.train, batch_size=BATCH)
    endless = (batch for epoch in range(10**6) for batch in batches.epoch(epoch))
    return lambda: learner.learn(*next(endless), BATCH) and None


def _checkpoint(learner: Learner) -> tuple[float, float]:
    """Seconds to write one, and to read it and load it."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        checkpoints, start = Checkpoints(Path(folder)), time.perf_counter()
        checkpoints.write(learner.step, *learner.state())
        written = time.perf_counter() - start
        found = checkpoints.newest(print)
        assert found is not None
        learner.load(*found[1:])
        return written, time.perf_counter() - start - written
