"""What the layers of any PyTorch model answer to images: in batches, and if asked in files that outlive a crash."""

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from sleepconv.files import write_atomically
from sleepconv.mapped import mapped_array
from sleepconv.names import did_you_mean

ENDS_A_STEP = ("torch.nn.modules.activation", "torch.nn.modules.pooling")


def find_layers(model: nn.Module, names: Iterable[str]) -> dict[str, nn.Module]:
    """The modules of these names; an unknown name is refused with the nearest ones.

    >>> find_layers(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), ["1"])
    {'1': ReLU()}
    """
    modules = {name: module for name, module in model.named_modules() if name}
    for name in names:
        if name not in modules:
            hint = did_you_mean(name, modules) or f"; it has {', '.join(list(modules)[:10])}"
            raise ValueError(f"{type(model).__name__} has no layer {name!r}{hint}")
    return {name: modules[name] for name in names}


def comparable_layers(model: nn.Module) -> list[str]:
    """The layers to compare with neurons: blocks, and the activations and poolings between them, in order.

    Nested ``Sequential`` containers are opened; a module with a forward of its own counts as one block. A network
    that has neither blocks nor activations is compared in all its modules but the last, its readout.

    >>> from sleepconv.models import resnet20
    >>> comparable_layers(resnet20())[:3], comparable_layers(resnet20())[-1]
    (['relu', 'stages.0.0', 'stages.0.1'], 'pool')
    """
    opened = list(_opened(model, ""))
    chosen = [name for name, module in opened if _is_block(module) or _ends_a_step(module)]
    return chosen or [name for name, _ in opened[:-1] or opened]


def _opened(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        if isinstance(child, nn.Sequential | nn.ModuleList):
            yield from _opened(child, f"{path}.")
        else:
            yield path, child


def _is_block(module: nn.Module) -> bool:
    return any(True for _ in module.children())


def _ends_a_step(module: nn.Module) -> bool:
    return any(kind.__module__ in ENDS_A_STEP for kind in type(module).__mro__)


Prepare = Callable[[np.ndarray], Tensor]
Answers = dict[str, np.ndarray]


def activations(
    model: nn.Module,
    images: Shaped[np.ndarray, "images ..."],
    layers: Sequence[str],
    *,
    prepare: Prepare = torch.from_numpy,
    batch_size: int = 64,
    cache: Path | None = None,
    advance: Callable[[int], Any] = lambda count: None,
) -> dict[str, Float[np.ndarray, "images features"]]:
    """Record what each layer answers to each image, flattened to one row of float32 per image.

    With ``cache`` memory holds one batch at a time: rows go to one file per layer in a folder of their own, named after
    the network's weights, the images and the layers, and a call that was interrupted continues after its last whole
    batch. A module that a network calls several times counts with its last answer.

    Args:
        model: any network; it runs in evaluation mode and gets its mode back.
        images: as ``prepare``, which turns a batch of them into the network's input, takes them.
        layers: names as in ``model.named_modules()``.
        cache: the folder to keep the answers in; without it they stay in memory.
        advance: called with the number of images that are done, for a progress bar.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    >>> activations(model, np.ones((5, 4), np.float32), ["0", "1"])["1"].shape
    (5, 3)
    """
    if not len(images) or batch_size < 1:
        raise ValueError(f"{len(images)} images in batches of {batch_size}: both numbers are 1 or more")
    if not layers:
        raise ValueError("no layer is named whose answers to record")
    samples = images[[0, len(images) // 2, -1]]
    store = (
        _Files(cache / digest_of(model, list(layers), images, prepare(samples)), len(images))
        if cache
        else _Memory(len(images))
    )
    done = store.resume(layers)
    advance(done)
    with _recording(model, layers) as recorded:
        for first in range(done, len(images), batch_size):
            batch = images[first : first + batch_size]
            recorded.clear()
            model(prepare(batch).to(_device(model)))
            _check_answers(recorded, layers, len(batch))
            store.write(first, recorded)
            advance(len(batch))
    return store.answers


class _Memory:
    """Rows in memory, allocated when the first batch tells their length."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.answers: Answers = {}

    def resume(self, layers: Iterable[str]) -> int:
        return 0

    def write(self, first: int, batch: Answers) -> None:
        for name, rows in batch.items():
            if name not in self.answers:
                self.answers[name] = self._allocate(name, (self.count, rows.shape[1]))
            self.answers[name][first : first + len(rows)] = rows

    def _allocate(self, name: str, shape: tuple[int, int]) -> np.ndarray:
        return np.empty(shape, np.float32)


class _Files(_Memory):
    """Rows in memory-mapped files; ``progress.json`` says how many are whole."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(count)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def resume(self, layers: Iterable[str]) -> int:
        try:
            done = int(json.loads((self.folder / "progress.json").read_text())["images"])
            self.answers = {name: np.lib.format.open_memmap(self._path(name), "r+") for name in layers}
        except (OSError, ValueError, KeyError, TypeError):
            self.answers = {}
            return 0
        return done

    def write(self, first: int, batch: Answers) -> None:
        super().write(first, batch)
        done = first + len(next(iter(batch.values())))
        for rows in self.answers.values():
            rows.flush()  # type: ignore[attr-defined]
        write_atomically(self.folder / "progress.json", json.dumps({"images": done}))

    def _allocate(self, name: str, shape: tuple[int, int]) -> np.ndarray:
        try:
            return mapped_array(self._path(name), np.float32, shape)
        except OSError as error:
            shutil.rmtree(self.folder)  # named after its content, so nobody else's
            raise OSError(
                f"cannot keep the answers of layer {name!r}, {math.prod(shape) * 4:,} bytes, in {self.folder.parent}: "
                f"{error.strerror}; make room there, or name another folder"
            ) from error

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"


@contextmanager
def _recording(model: nn.Module, layers: Sequence[str]) -> Iterator[Answers]:
    """While open, a forward pass leaves copies of the layers' answers in the dictionary that is given."""
    recorded: Answers = {}
    handles = [
        module.register_forward_hook(lambda _m, _i, output, name=name: recorded.update({name: _rows(output, name)}))
        for name, module in find_layers(model, layers).items()
    ]
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield recorded
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in modes.items():
            module.training = mode


def _rows(output: Any, name: str) -> np.ndarray:
    """Copy an answer at once: an in-place operation may follow."""
    if isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise TypeError(f"layer {name!r} answers with {type(output).__name__}; only tensors can be compared")
    return output.detach().flatten(1).to("cpu", torch.float32, copy=True).numpy()


def _check_answers(recorded: Answers, layers: Sequence[str], count: int) -> None:
    for name in layers:
        if name not in recorded:
            raise ValueError(f"layer {name!r} did not run for these images; leave it out")
        if len(recorded[name]) != count:
            raise ValueError(f"layer {name!r} answers with {len(recorded[name])} rows to {count} images")


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def digest_of(model: nn.Module, *others: Any) -> str:
    """A name for a network with its weights, its structure and whatever else decides a result.

    >>> digest_of(nn.Linear(2, 1), "a") != digest_of(nn.Linear(2, 1), "a")
    True
    """
    return digest_of_values(*model.state_dict().values(), *others, kind=str(model))


def digest_of_values(*values: Any, kind: str = "") -> str:
    """A name for arrays, tensors and whatever shows its content as text.

    >>> digest_of_values(np.arange(3)) == digest_of_values(np.arange(3)) != digest_of_values(np.arange(4))
    True
    """
    digest = hashlib.blake2b(kind.encode(), digest_size=12)
    for value in values:
        if isinstance(value, Tensor):
            value = value.detach().cpu().contiguous().numpy()
        digest.update(np.ascontiguousarray(value).data if isinstance(value, np.ndarray) else repr(value).encode())
    return digest.hexdigest()
