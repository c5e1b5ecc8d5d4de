"""Every kind of recipe takes a step on tiny files in the official formats, and its network sleeps if it ever does."""

from functools import partial
from math import isfinite

import pytest

from sleepconv.experiments.data import Batches, load_task, tasks
from sleepconv.experiments.paper import RECIPES, SEARCHES, recipe
from sleepconv.experiments.training import build_network, learner
from sleepconv.experiments.training.parallel import Place
from sleepconv.memory import keep_freed_memory

FILES = {
    "cifar10": "small_cifar10",
    "cifar10-16x16": "small_cifar10",
    "cifar100": "small_cifar100",
    "tiny-imagenet": "small_tiny_imagenet",
    "imagenet": "small_imagenet",
}
# The smallest whose last layers still have two neurons in a grid.
SMALL_CROP = 97


def network_of(run):
    return run.dataset, run.network, run.connectivity, run.wake, run.grids


@pytest.fixture(scope="module")
def networks():
    """The recipes come network by network: one at a time is kept, since building one takes the most time."""
    keep_freed_memory()
    kept = {}

    def build(run, input_size, num_classes):
        key = (network_of(run), input_size, num_classes)
        if key not in kept:
            kept.clear()
            kept[key] = build_network(run, input_size, num_classes)
        return kept[key]

    return build


@pytest.fixture
def learns(networks, data_dir, request, monkeypatch):
    """Take one step of a run and let its network sleep."""
    monkeypatch.setattr(learner, "build_network", networks)
    # A locally connected ResNet18 has 483 million weights at 224×224; the same network takes smaller crops too.
    monkeypatch.setattr(tasks, "IMAGENET_CROP", SMALL_CROP)
    monkeypatch.setattr(tasks, "EncodedSource", partial(tasks.EncodedSource, short_side=100, size=SMALL_CROP))

    def check(run):
        if run.dataset in FILES:  # the digits come with a package
            request.getfixturevalue(FILES[run.dataset])
        task = load_task(run.dataset, data_dir=data_dir, padding=run.padding, tuning=run.tuning, complete=False)
        batches = Batches(task.train, batch_size=run.batch_size, repetitions=run.repetitions)
        student = learner.Learner(run, task, Place(), steps_per_epoch=98)
        loss, _ = student.learn(*batches.batch(0, 0), batches.images_at(0))
        assert isfinite(loss)
        assert student.step == 1
        assert (student.sleep is None) == (run.sleep_every is None)
        if student.sleep is not None:
            student.sleep.rule(student.model)

    return check


def small(run):
    """The fewest images that 16 repetitions allow, and of a learned sleep one step."""
    shortest = {"hebbian": {"steps": 1}, "network_circuit": {"sweeps": 1}}
    options = {**run.sleep_options, **shortest.get(run.sleep_rule, {})}
    return run.changed(batch_size=16 if run.repetitions > 1 else 4, sleep_options=options)


def kind(name):
    """What a step and a sleep depend on: not on rates, and of repetitions and periods only on whether there are any.

    How far images are translated matters to none of the networks; those that convolve get all there are.
    """
    run = recipe(name)
    return small(run).changed(
        name="any",
        learning_rate=1.0,
        weight_decay=1.0,
        epochs=1,
        padding=run.padding if run.connectivity == "convolutional" else 0,
        repetitions=16 if run.repetitions > 1 else 1,
        sleep_every=run.sleep_every and 1,
        slow_momentum=0.5 if run.slow_momentum else 0.0,
    )


KINDS = {kind(name).as_json(): name for name in RECIPES}  # the last of each kind


@pytest.mark.parametrize("name", sorted(KINDS.values(), key=lambda name: network_of(recipe(name))))
def test_takes_a_step(name, learns):
    learns(small(recipe(name)))


@pytest.mark.parametrize("name", ["cifar10_local", "cifar100_convolutional", "tiny_imagenet_convolutional"])
def test_a_point_of_a_grid_takes_a_step_without_the_validation_images(name, learns):
    learns(small(SEARCHES[f"{name}_grid"]()[0]))
