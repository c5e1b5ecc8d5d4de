import threading

import numpy as np
import pytest
import torch

from sleepconv.experiments.data import Batches, ChannelStatistics, Images, TensorSource, Translate
from sleepconv.experiments.data.images import random_stream


def numbered(count: int, size: int = 4) -> Images:
    """Images whose label is their number."""
    pixels = torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, size, size).contiguous()
    return Images(pixels, torch.arange(count), tuple(str(i) for i in range(count)))


def source(count: int, padding: int = 1) -> TensorSource:
    crop = Translate.after_padding(padding, size=(4, 4), statistics=ChannelStatistics((50.0,), (20.0,)))
    return TensorSource(numbered(count), crop)


def labels_of(batches: Batches, epoch: int) -> list[int]:
    return [label for _, labels in batches.epoch(epoch) for label in labels.tolist()]


def test_an_epoch_sees_every_image_once_in_an_order_of_its_own():
    batches = Batches(source(50), batch_size=8)
    first, second = labels_of(batches, 0), labels_of(batches, 1)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert len(batches) == 7


def test_any_batch_is_reproduced_bit_for_bit_from_seed_epoch_and_step():
    batches = Batches(source(100), batch_size=16, seed=5)
    seen = {(e, s): batch for e in range(3) for s, batch in enumerate(batches.epoch(e))}
    fresh = Batches(source(100), batch_size=16, seed=5, prefetch=0)
    for (epoch, step), (inputs, labels) in reversed(seen.items()):
        again, same = fresh.batch(epoch, step)
        assert torch.equal(inputs, again)
        assert torch.equal(labels, same)


def test_seed_epoch_and_step_each_change_the_translations():
    def first_crops(seed: int, epoch: int, step: int) -> np.ndarray:
        return random_stream("translations", seed=seed, epoch=epoch, step=step).random(4)

    kinds = [first_crops(*key) for key in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**40, 0, 0)]]
    assert len({tuple(kind) for kind in kinds}) == 5


def test_a_resumed_epoch_continues_where_it_stopped():
    batches = Batches(source(100), batch_size=16)
    complete = [inputs for inputs, _ in batches.epoch(2)]
    rest = [inputs for inputs, _ in batches.epoch(2, start=3)]
    assert len(rest) == len(complete) - 3
    assert all(torch.equal(a, b) for a, b in zip(complete[3:], rest, strict=True))


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("repetitions", [1, 4])
def test_ranks_together_see_what_one_process_sees_without_overlap(world_size, repetitions):
    def batches(rank: int, world_size: int) -> Batches:
        return Batches(source(50), batch_size=24, repetitions=repetitions, rank=rank, world_size=world_size)

    alone, ranks = batches(0, 1), [batches(rank, world_size) for rank in range(world_size)]
    everything = []
    for step in range(len(alone)):
        parts = [each.batch(0, step) for each in ranks]
        together = sorted(
            (int(label), image.numpy().tobytes())
            for inputs, labels in parts
            for image, label in zip(inputs, labels, strict=True)
        )
        inputs, labels = alone.batch(0, step)
        assert together == sorted(
            (int(label), image.numpy().tobytes()) for image, label in zip(inputs, labels, strict=True)
        )
        originals = [set(labels.tolist()) for _, labels in parts]
        assert sum(map(len, originals)) == len(set.union(*originals))
        everything += [label for part in originals for label in part]
    assert sorted(everything) == list(range(50))


def test_512_images_with_16_repetitions_are_32_originals_at_different_places():
    batches = Batches(source(64, padding=4), batch_size=512, repetitions=16)
    inputs, labels = batches.batch(0, 0)
    assert len(inputs) == 512
    assert (torch.bincount(labels, minlength=64).unique().tolist()) == [0, 16]
    assert len(labels.unique()) == 32
    copies = inputs[labels == labels[0]]
    assert len({copy.numpy().tobytes() for copy in copies}) > 1
    assert len(batches) == 2


@pytest.mark.parametrize(("batch_size", "repetitions"), [(512, 3), (8, 16), (0, 1), (8, 0)])
def test_repetitions_that_do_not_divide_the_batch_are_refused(batch_size, repetitions):
    with pytest.raises(ValueError, match=r"must be positive and divisible by `repetitions`"):
        Batches(source(10), batch_size=batch_size, repetitions=repetitions)


def test_the_last_partial_batch_is_kept_or_dropped_as_told():
    kept, dropped = (Batches(source(20), batch_size=8, drop_last=drop) for drop in (False, True))
    assert [len(labels) for _, labels in kept.epoch(0)] == [8, 8, 4]
    assert [len(labels) for _, labels in dropped.epoch(0)] == [8, 8]
    assert [kept.images_at(step) for step in range(3)] == [8, 8, 4]


def test_without_shuffling_the_order_is_the_sources_own():
    assert labels_of(Batches(source(20), batch_size=8, shuffle=False), 3) == list(range(20))


def test_dropping_the_only_batch_is_refused():
    with pytest.raises(ValueError, match="do not fill"):
        Batches(source(5), batch_size=8, drop_last=True)


def test_a_rank_outside_the_world_is_refused():
    with pytest.raises(ValueError, match="`rank` must be from 0"):
        Batches(source(5), batch_size=2, rank=2, world_size=2)


def test_a_step_or_start_outside_the_epoch_is_refused():
    batches = Batches(source(5), batch_size=2)
    with pytest.raises(IndexError, match="`step` must be from 0 to 2, got 3"):
        batches.batch(0, 3)
    with pytest.raises(ValueError, match="`start` must be a step"):
        batches.epoch(0, start=4)


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match="`seed` must be an integer"):
        Batches(source(5), batch_size=2, seed=-1).batch(0, 0)


class Failing(TensorSource):
    def batch(self, positions, chance):
        if 3 in positions:
            raise OSError("the disk is gone")
        return super().batch(positions, chance)


def test_an_error_while_prefetching_comes_out_where_the_batch_would_have():
    batches = Batches(Failing(numbered(8), source(8).transform), batch_size=1, shuffle=False)
    running = batches.epoch(0)
    assert [next(running)[1].item() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(running)


def test_leaving_an_epoch_early_leaves_one_idle_thread_that_serves_the_next():
    batches = Batches(source(50), batch_size=2)
    for epoch in range(5):
        for _ in batches.epoch(epoch):
            break
    assert sum(thread.name.startswith("prefetch") for thread in threading.enumerate()) >= 1
    assert sorted(labels_of(batches, 9)) == list(range(50))
