"""Loss and accuracy: counting them, and evaluating a network."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import update_bn

from sleepconv.experiments.data.images import Batch
from sleepconv.experiments.training.parallel import Place


@dataclass
class Tally:
    """Sums over images, which can be added over batches and processes.

    >>> tally = Tally()
    >>> tally.add(torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0]), loss=torch.tensor(1.5))
    1.5
    >>> tally.means()["top1"]
    50.0
    """

    images: float = 0.0
    loss: float = 0.0
    top1: float = 0.0
    top5: float = 0.0

    def add(self, scores: Tensor, labels: Tensor, loss: Tensor) -> float:
        """Count a batch, given the sum of its losses, and return this sum: one copy from the device."""
        loss = loss.detach()
        best = scores.detach().topk(min(5, scores.shape[1]), dim=1).indices == labels[:, None]
        counts = [best[:, 0].sum().to(loss.dtype), best.sum().to(loss.dtype)]
        value, top1, top5 = torch.stack([loss, *counts]).tolist()
        self.images += len(labels)
        self.loss += value
        self.top1 += top1
        self.top5 += top5
        return value

    def over_all(self, place: Place) -> "Tally":
        """Return the sum over all processes."""
        return Tally(*place.total([self.images, self.loss, self.top1, self.top5]))

    def means(self) -> dict[str, float]:
        """Return the mean loss, and accuracies in percent.

        >>> tally = Tally()
        >>> loss = tally.add(torch.eye(10)[:4], torch.tensor([0, 1, 2, 9]), loss=torch.tensor(2.0))
        >>> tally.means()
        {'loss': 0.5, 'top1': 75.0, 'top5': 75.0}
        """
        count = max(self.images, 1.0)
        return {"loss": self.loss / count, "top1": 100 * self.top1 / count, "top5": 100 * self.top5 / count}

    def as_dict(self) -> dict[str, float]:
        """Return the sums, for a checkpoint."""
        return asdict(self)


def summed_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of a batch, summed over its images, in float32 or better.

    >>> summed_loss(torch.zeros(3, 10, dtype=torch.bfloat16), torch.arange(3)).item() / 3
    2.3025851249694824
    """
    return F.cross_entropy(scores.to(torch.promote_types(scores.dtype, torch.float32)), labels, reduction="sum")


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Batch], place: Place | None = None) -> Tally:
    """Count loss and correct answers over the batches in evaluation mode; the model's mode is as before afterwards.

    >>> images = torch.randn(6, 4)
    >>> evaluate(nn.Identity(), [(images, images.argmax(1))]).means()["top1"]
    100.0
    """
    place = place or Place()
    training, tally = model.training, Tally()
    model.eval()
    try:
        for inputs, labels in batches:
            inputs, labels = place.receive(inputs), place.receive(labels)
            with place.autocast():
                scores = model(inputs)
            tally.add(scores, labels, summed_loss(scores, labels))
    finally:
        model.train(training)
    return tally.over_all(place)


@contextmanager
def reestimated_statistics(model: nn.Module, batches: Iterable[Batch], place: Place | None = None) -> Iterator[None]:
    """Let BatchNorm use its statistics over these training batches; afterwards it has its running averages again.

    A sleep changes the weights but not the running averages, which follow only over the next steps.

    >>> model, images = nn.Sequential(nn.BatchNorm1d(1)).eval(), torch.tensor([[1.0], [3.0]])
    >>> with reestimated_statistics(model, [(images, torch.zeros(2))]):
    ...     [f"{value:.2f}" for value in model(images).flatten().tolist()]
    ['-0.71', '0.71']
    >>> model[0].running_mean.item()
    0.0
    """
    place = place or Place()
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    kept = [{name: buffer.clone() for name, buffer in norm.named_buffers()} for norm in norms]
    try:
        with place.autocast():
            update_bn((place.receive(inputs) for inputs, _ in batches), model)
        yield
    finally:
        for norm, buffers in zip(norms, kept, strict=True):
            for name, buffer in norm.named_buffers():
                buffer.copy_(buffers[name])
