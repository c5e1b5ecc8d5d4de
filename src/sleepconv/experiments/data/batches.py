"""`Batches`, the loader: which images are in which batch, on which process; prepared ahead of time."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from sleepconv.experiments.data.images import CHANCES, Batch, Source, random_stream


class Batches:
    """Batches of a source, each a function of (seed, epoch, step) only.

    Several processes share every batch without overlap: together they see what one process with the same
    ``batch_size`` would see, image for image and crop for crop. An epoch takes each image once; with
    ``repetitions``, a batch has that many differently translated copies of each of fewer originals.

    Args:
        source: the images.
        batch_size: images in a batch, over all processes and including repetitions.
        seed: the seed of order and translations.
        repetitions: copies of each original in a batch; must divide ``batch_size``.
        shuffle: whether each epoch has a new order, or always that of the source.
        drop_last: whether to leave out the last batch of an epoch if it is not full.
        rank: the number of this process.
        world_size: the number of processes.
        prefetch: batches to prepare ahead in a background thread; 0 for none.

    >>> from sleepconv.experiments.data.digits import digits, on_visual_field
    >>> from sleepconv.experiments.data.images import TensorSource
    >>> batches = Batches(TensorSource(digits(), on_visual_field()), batch_size=64, seed=1)
    >>> inputs, labels = batches.batch(epoch=3, step=5)
    >>> again = next(batches.epoch(3, start=5))
    >>> bool((inputs == again[0]).all())
    True
    """

    def __init__(
        self,
        source: Source,
        *,
        batch_size: int,
        seed: int = 0,
        repetitions: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        prefetch: int = 2,
    ) -> None:
        if batch_size < 1 or repetitions < 1 or batch_size % repetitions:
            raise ValueError(
                f"`batch_size` ({batch_size}) must be positive and divisible by `repetitions` ({repetitions}), "
                "so that a batch has the same number of copies of each original"
            )
        if not 0 <= rank < world_size:
            raise ValueError(f"`rank` must be from 0 to world_size - 1 ({world_size - 1}), got {rank}")
        self.source, self.batch_size, self.seed = source, batch_size, seed
        self.repetitions, self.shuffle, self.drop_last = repetitions, shuffle, drop_last
        self.rank, self.world_size, self.prefetch = rank, world_size, prefetch
        self.originals = batch_size // repetitions
        self._worker: ThreadPoolExecutor | None = None
        self._known_order: tuple[int, np.ndarray] | None = None
        if not len(self):
            raise ValueError(
                f"{len(source)} images do not fill a batch of {self.originals} originals and drop_last=True "
                "leaves out the rest; choose a smaller batch or drop_last=False"
            )

    def __len__(self) -> int:
        """Return the number of steps in an epoch."""
        full, rest = divmod(len(self.source), self.originals)
        return full + bool(rest and not self.drop_last)

    def images_at(self, step: int) -> int:
        """Return the number of images in the batch of a step, over all processes and including copies."""
        first = self._first(step)
        return min(self.originals, len(self.source) - first) * self.repetitions

    def positions(self, epoch: int, step: int) -> np.ndarray:
        """Return the originals in the batch of a step, over all processes, as positions in the source."""
        first = self._first(step)
        return self._order(epoch)[first : first + self.originals]

    def batch(self, epoch: int, step: int) -> Batch:
        """Return this process's part of the batch of one step; no earlier batch has to be made for it."""
        originals = self.positions(epoch, step)
        random = random_stream("translations", seed=self.seed, epoch=epoch, step=step)
        chance = random.random((len(originals), self.repetitions, CHANCES))
        mine = slice(self.rank, None, self.world_size)
        repeated = np.repeat(originals[mine], self.repetitions)
        return self.source.batch(repeated, chance[mine].reshape(-1, CHANCES))

    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch in order, starting at step ``start`` (to resume in the middle)."""
        if not 0 <= start <= len(self):
            raise ValueError(f"`start` must be a step from 0 to {len(self)}, got {start}")
        steps = range(start, len(self))
        if not self.prefetch:
            return (self.batch(epoch, step) for step in steps)
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        return _ahead(self._worker, [partial(self.batch, epoch, step) for step in steps], self.prefetch)

    def _first(self, step: int) -> int:
        if not 0 <= step < len(self):
            raise IndexError(f"`step` must be from 0 to {len(self) - 1}, got {step}")
        return step * self.originals

    def _order(self, epoch: int) -> np.ndarray:
        if not self.shuffle:
            return np.arange(len(self.source))
        known = self._known_order
        if known is None or known[0] != epoch:
            known = epoch, self.source.order(random_stream("order", seed=self.seed, epoch=epoch))
            self._known_order = known
        return known[1]


def _ahead(worker: ThreadPoolExecutor, tasks: list[Callable[[], Batch]], count: int) -> Iterator[Batch]:
    """Run tasks in the worker, up to ``count`` ahead of the batch that is yielded; errors are raised in turn."""
    waiting = deque(worker.submit(task) for task in tasks[:count])
    try:
        for following in [*tasks[count:], *[None] * len(waiting)]:
            batch = waiting.popleft().result()
            if following is not None:
                waiting.append(worker.submit(following))
            yield batch
    finally:
        for left in waiting:
            left.cancel()
