import pytest
import torch

from sleepconv.experiments.data import Batches, find_dataset, load_task, measure
from sleepconv.experiments.paper import RECIPES, recipe

SMALL = [
    ("cifar10", "small_cifar10", (3, 32, 32), 100, 20),
    ("cifar100", "small_cifar100", (3, 32, 32), 200, 100),
    ("tiny-imagenet", "small_tiny_imagenet", (3, 48, 48), 30, 6),
    ("imagenet", "small_imagenet", (3, 224, 224), 12, 6),
    ("fashion-mnist", "small_fashion", (1, 28, 28), 50, 20),
]


@pytest.mark.parametrize(("name", "files", "input_size", "train", "test"), SMALL)
def test_every_dataset_trains_on_all_and_evaluates_on_the_test_set(
    name, files, input_size, train, test, data_dir, request
):
    request.getfixturevalue(files)
    task = load_task(name, data_dir=data_dir, padding=0 if name == "imagenet" else 4, complete=False)
    assert task.input_size == input_size
    assert (len(task.train), len(task.evaluation)) == (train, test)
    for source in (task.train, task.evaluation):
        inputs, labels = Batches(source, batch_size=6).batch(0, 0)
        assert inputs.shape == (6, *input_size)
        assert inputs.dtype == torch.float32
        assert labels.max() < len(task.classes)


@pytest.mark.parametrize(("name", "files", "input_size", "train", "test"), SMALL)
def test_tuning_evaluates_on_held_out_training_images(name, files, input_size, train, test, data_dir, request):
    request.getfixturevalue(files)
    task = load_task(name, data_dir=data_dir, tuning=True, complete=False)
    held_out = max(1, train // 10)
    assert (len(task.train), len(task.evaluation)) == (train - held_out, held_out)
    other = load_task(name, data_dir=data_dir, tuning=True, complete=False, split_seed=1)
    rows = [t.evaluation.images.rows if hasattr(t.evaluation, "images") else t.evaluation.rows for t in (task, other)]
    assert list(rows[0]) != list(rows[1])


def test_normalisation_is_that_of_the_training_split(small_cifar10, data_dir):
    task = load_task("cifar10", data_dir=data_dir, tuning=True, complete=False)
    assert task.train.statistics == task.evaluation.statistics == measure(task.train.images)
    inputs, _ = Batches(task.train, batch_size=90).batch(0, 0)
    assert inputs.mean().abs() < 1e-4
    assert (inputs.std() - 1).abs() < 1e-2


def test_statistics_of_different_splits_are_kept_apart(small_cifar10, data_dir):
    seeds = [load_task("cifar10", data_dir=data_dir, tuning=True, complete=False, split_seed=s) for s in (0, 1, 0)]
    assert seeds[0].train.statistics == seeds[2].train.statistics != seeds[1].train.statistics


def test_evaluation_images_are_not_translated(small_cifar10, data_dir):
    task = load_task("cifar10", data_dir=data_dir, padding=4, complete=False)
    first, second = (Batches(task.evaluation, batch_size=20, shuffle=False).batch(epoch, 0)[0] for epoch in (0, 1))
    assert torch.equal(first, second)


def test_digits_move_by_up_to_the_padding_and_are_tested_in_the_middle():
    task = load_task("digits", padding=8)
    inputs, _ = Batches(task.evaluation, batch_size=50).batch(0, 0)
    inputs[:, :, 2:10, 8:16] = 0
    assert (inputs == 0).all()
    assert len(load_task("digits", tuning=True).evaluation) == 144


def test_too_much_padding_for_tiny_imagenet_is_refused_before_anything_is_read(data_dir):
    with pytest.raises(ValueError, match="`padding` must be from 0 to 8"):
        load_task("tiny-imagenet", data_dir=data_dir, padding=9)


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("cifer10", "cifar10"),
        ("CIFAR-100", "cifar100"),
        ("tinyimagenet", "tiny-imagenet"),
        ("digit", "digits"),
    ],
)
def test_a_typo_is_answered_with_the_nearest_name(typo, meant):
    with pytest.raises(ValueError, match=f"there is no dataset '{typo}'; did you mean '{meant}'?"):
        find_dataset(typo)


def test_a_name_near_nothing_is_answered_with_all_names():
    with pytest.raises(
        ValueError,
        match="there are digits, digits-left, cifar10, cifar10-16x16, cifar100, tiny-imagenet, imagenet, fashion",
    ):
        find_dataset("zzzz")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_made_on_the_gpu_are_those_of_the_cpu(small_cifar10, data_dir):
    batches = [
        Batches(
            load_task("cifar10", data_dir=data_dir, padding=4, complete=False, device=device).train,
            batch_size=9,
        )
        for device in ("cpu", "cuda")
    ]
    torch.testing.assert_close(batches[0].batch(0, 0)[0], batches[1].batch(0, 0)[0].cpu())


@pytest.mark.parametrize("name", ["digits", "cifar10", "imagenet", "tiny-imagenet"])
def test_another_word_for_skipping_is_refused_whatever_the_dataset(name, data_dir):
    with pytest.raises((ValueError, TypeError), match="on_corrupt"):
        load_task(name, data_dir=data_dir, on_corrupt="maybe")


def test_a_negative_padding_is_refused_whatever_the_dataset():
    with pytest.raises(ValueError, match="`padding` must be at least 0, got -1"):
        load_task("digits", padding=-1)


def test_padding_of_imagenet_is_warned_of_and_no_recipe_has_any(small_imagenet, data_dir):
    with pytest.warns(UserWarning, match="padding=4 has no effect: ImageNet's crops are its translations"):
        load_task("imagenet", data_dir=data_dir, padding=4, complete=False)
    runs = [recipe(name) for name in RECIPES]
    assert {run.padding for run in runs if run.dataset == "imagenet"} == {0}
