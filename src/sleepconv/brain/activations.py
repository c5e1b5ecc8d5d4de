"""From images to the activations of any PyTorch model's layers, in batches and optionally in a resumable cache."""

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Shaped
from torch import Tensor, nn
from torch.nn.functional import interpolate

from sleepconv.brain.recordings import Pictures
from sleepconv.files import write_atomically
from sleepconv.mapped import mapped_array
from sleepconv.names import did_you_mean

_LUMINANCE = (0.299, 0.587, 0.114)
_STEP_ENDS = ("torch.nn.modules.activation", "torch.nn.modules.pooling")
_Activations = dict[str, np.ndarray]


@dataclass(frozen=True)
class Preparation:
    """Scaling and normalisation that turn images into a network's input.

    The largest central part with the input's proportions is scaled to the input's size, with antialiasing. Grey images
    get three equal channels for a network that sees colour; colours become luminance for one that does not.

    Args:
        input_size: channels, height and width of the network's input.
        mean: of each channel of the training images, in units of pixel values (0 to 255).
        std: their standard deviation.

    >>> Preparation((3, 32, 32), mean=(127.5,) * 3, std=(60.0,) * 3)(np.zeros((5, 96, 96), np.uint8)).shape
    torch.Size([5, 3, 32, 32])
    """

    input_size: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check that every channel can be normalised."""
        channels = self.input_size[0]
        if not len(self.mean) == len(self.std) == channels or not all(std > 0 for std in self.std):
            raise ValueError(
                f"`mean` and `std` must have a value for each of {channels} channels, with `std` above 0, "
                f"got {self.mean} and {self.std}"
            )

    def __call__(self, images: Pictures | Tensor) -> Float32[Tensor, "images channels height width"]:
        """Return the network's input for a batch of images (images, height, width) or (images, height, width, 3)."""
        pixels = torch.as_tensor(images).to(torch.float32)
        pixels = pixels[:, None] if pixels.ndim == 3 else pixels.movedim(3, 1)
        pixels = _scale(_set_channels(pixels, self.input_size[0]), self.input_size[1:])
        mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (self.mean, self.std))
        return pixels * (1 / std).float() + (-mean / std).float()


def comparable_layers(model: nn.Module) -> list[str]:
    """Name the layers to compare with neurons, in order: blocks, and the activations and poolings between them.

    ``Sequential`` and ``ModuleList`` containers are searched; any other module with children is one block. For a
    network without blocks and activations these are all modules except the last, its readout.

    >>> from sleepconv.models import resnet20
    >>> comparable_layers(resnet20())[:3], comparable_layers(resnet20())[-1]
    (['relu', 'stages.0.0', 'stages.0.1'], 'pool')
    """
    modules = list(_outside_containers(model))
    chosen = [name for name, module in modules if any(True for _ in module.children()) or _ends_a_step(module)]
    return chosen or [name for name, _ in modules[:-1] or modules]


def find_layers(model: nn.Module, names: Iterable[str]) -> dict[str, nn.Module]:
    """Return the modules with these names; the name of a class, such as ReLU, stands for all of that class.

    Raises:
        ValueError: there is no such layer; the nearest name is suggested.

    >>> find_layers(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), ["1"])
    {'1': ReLU()}
    >>> list(find_layers(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), ["Linear"]))
    ['0', '2']
    """
    modules = {name: module for name, module in model.named_modules() if name}
    found: dict[str, nn.Module] = {}
    for name in names:
        chosen = {name: modules[name]} if name in modules else _of_class(modules, name)
        if not chosen:
            classes = dict.fromkeys(type(module).__name__ for module in modules.values())
            raise ValueError(f"{type(model).__name__} has no layer {name!r}{did_you_mean(name, [*classes, *modules])}")
        found |= chosen
    return found


def _of_class(modules: Mapping[str, nn.Module], class_name: str) -> dict[str, nn.Module]:
    return {name: m for name, m in modules.items() if class_name in [kind.__name__ for kind in type(m).__mro__]}


def activations(
    model: nn.Module,
    images: Shaped[np.ndarray | Tensor, "images ..."],
    layers: Sequence[str],
    *,
    prepare: Callable[[Any], Tensor] = torch.as_tensor,
    batch_size: int = 64,
    cache: Path | None = None,
    advance: Callable[[int], Any] = lambda count: None,
) -> dict[str, Float[np.ndarray, "images features"]]:
    """Record the activations of each layer for each image, flattened to one row of float32 per image.

    With ``cache``, memory holds one batch at a time: rows are written to one file per layer, in a subfolder named after
    the network's weights, the images and the layers, and an interrupted call resumes after its last complete batch. For
    a module that the network calls several times, the last call counts.

    Args:
        model: any network; it runs in evaluation mode, and its mode is restored.
        images: in any form that ``prepare`` accepts; by default arrays or tensors that are the network's input.
        layers: names as in ``model.named_modules()``, or of classes: "ReLU" for every ReLU.
        prepare: turns a batch of images into the network's input, for example a `Preparation`.
        batch_size: images per forward pass.
        cache: the folder for the files; by default activations stay in memory.
        advance: called with the number of images that have been processed, for a progress bar.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    >>> activations(model, torch.ones(5, 4), ["0", "1"])["1"].shape
    (5, 3)
    """
    if not isinstance(images, np.ndarray | Tensor):
        raise TypeError(f"`images` must be an array or a tensor, got {type(images).__name__}")
    if not len(images) or batch_size < 1:
        raise ValueError(f"`images` and `batch_size` must be at least 1, got {len(images)} images and {batch_size}")
    if not layers:
        raise ValueError("`layers` is empty; name at least one layer")
    layers = list(find_layers(model, layers))
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    store = _Memory(len(images))
    if cache:
        samples = prepare(images[[0, len(images) // 2, -1]])
        store = _Files(cache / digest_of(model, list(layers), images, samples), len(images))
    done = store.resume(layers)
    advance(done)
    with _recorded(model, layers) as batch:
        for first in range(done, len(images), batch_size):
            shown = images[first : first + batch_size]
            batch.clear()
            model(prepare(shown).to(device))
            _check_batch(batch, layers, len(shown))
            store.write(first, batch)
            advance(len(shown))
    return store.rows


def digest_of(*values: Any) -> str:
    """Return a short hash of arrays, tensors, networks with their weights, and anything whose repr is its content.

    >>> digest_of(np.arange(3)) == digest_of(np.arange(3)) != digest_of(np.arange(4))
    True
    >>> digest_of(nn.Linear(2, 1), "a") != digest_of(nn.Linear(2, 1), "a")  # other weights
    True
    """
    digest = hashlib.blake2b(digest_size=12)
    for value in values:
        for part in (value, *value.state_dict().values()) if isinstance(value, nn.Module) else (value,):
            if isinstance(part, Tensor):
                part = part.detach().cpu().contiguous().numpy()
            digest.update(np.ascontiguousarray(part).data if isinstance(part, np.ndarray) else repr(part).encode())
    return digest.hexdigest()


def _set_channels(pixels: Tensor, channels: int) -> Tensor:
    if pixels.shape[1] == channels:
        return pixels
    if channels == 3:
        return pixels.expand(-1, 3, -1, -1)
    return (pixels * torch.tensor(_LUMINANCE)[:, None, None]).sum(dim=1, keepdim=True)


def _scale(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    height, width = pixels.shape[2:]
    scale = min(height / size[0], width / size[1])
    part = [round(extent * scale) for extent in size]
    top, left = (height - part[0]) // 2, (width - part[1]) // 2
    pixels = pixels[:, :, top : top + part[0], left : left + part[1]]
    return pixels if tuple(part) == size else interpolate(pixels, size, mode="bilinear", antialias=True)


def _outside_containers(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        if isinstance(child, nn.Sequential | nn.ModuleList):
            yield from _outside_containers(child, f"{path}.")
        else:
            yield path, child


def _ends_a_step(module: nn.Module) -> bool:
    return any(kind.__module__ in _STEP_ENDS for kind in type(module).__mro__)


class _Memory:
    """Rows in memory, allocated when the first batch shows their length."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.rows: _Activations = {}

    def resume(self, layers: Iterable[str]) -> int:
        return 0

    def write(self, first: int, batch: _Activations) -> None:
        for name, rows in batch.items():
            if name not in self.rows:
                self.rows[name] = self._allocate(name, (self.count, rows.shape[1]))
            self.rows[name][first : first + len(rows)] = rows

    def _allocate(self, name: str, shape: tuple[int, int]) -> np.ndarray:
        return np.empty(shape, np.float32)


class _Files(_Memory):
    """Rows in memory-mapped files; ``progress.json`` counts the images that are complete."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(count)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def resume(self, layers: Iterable[str]) -> int:
        try:
            done = int(json.loads((self.folder / "progress.json").read_text())["images"])
            self.rows = {name: np.lib.format.open_memmap(self._path(name), "r+") for name in layers}
        except (OSError, ValueError, KeyError, TypeError):
            self.rows = {}
            return 0
        return done

    def write(self, first: int, batch: _Activations) -> None:
        super().write(first, batch)
        done = first + len(next(iter(batch.values())))
        for rows in self.rows.values():
            rows.flush()  # type: ignore[attr-defined]
        write_atomically(self.folder / "progress.json", json.dumps({"images": done}))

    def _allocate(self, name: str, shape: tuple[int, int]) -> np.ndarray:
        try:
            return mapped_array(self._path(name), np.float32, shape)
        except OSError as error:
            shutil.rmtree(self.folder)  # named after its content, so it cannot be anyone else's
            raise OSError(
                f"cannot write the activations of layer {name!r} ({math.prod(shape) * 4:,} bytes) to "
                f"{self.folder.parent}: {error.strerror}; free some space there or choose another folder"
            ) from error

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"


@contextmanager
def _recorded(model: nn.Module, layers: Sequence[str]) -> Iterator[_Activations]:
    """Give a dictionary that every forward pass fills with copies of the layers' activations."""
    recorded: _Activations = {}
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
    """Copy a layer's output at once, because an in-place operation may follow."""
    if isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise TypeError(f"layer {name!r} must return a tensor, got {type(output).__name__}")
    return output.detach().flatten(1).to("cpu", torch.float32, copy=True).numpy()


def _check_batch(batch: _Activations, layers: Sequence[str], count: int) -> None:
    for name in layers:
        if name not in batch:
            raise ValueError(f"layer {name!r} did not run for these images; leave it out")
        if len(batch[name]) != count:
            raise ValueError(f"layer {name!r} returned {len(batch[name])} rows for {count} images")
