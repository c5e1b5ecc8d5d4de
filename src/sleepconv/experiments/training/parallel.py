"""Where a run is computed: the device and its precision, this process among others, and a record of it all."""

import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sleepconv.experiments.runs.machine import machine
from sleepconv.kernels import native
from sleepconv.nn.layout import LayoutKeepingBatchNorm2d
from sleepconv.sleep.layers import SleepingLayer
from sleepconv.wake.feedback_layers import Feedback

Sharding = Literal["ddp", "fsdp"]
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Place:
    """A process's device, its number among all processes, and the precision of the responses there."""

    device: torch.device = _CPU
    rank: int = 0
    world_size: int = 1
    precision: torch.dtype = torch.float32

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def receive(self, tensor: Tensor) -> Tensor:
        """Return the tensor on this device."""
        return tensor.to(self.device, non_blocking=True)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context in which responses have the place's precision."""
        enabled = self.precision != torch.float32
        return torch.autocast(self.device.type, dtype=self.precision if enabled else torch.bfloat16, enabled=enabled)

    def scaler(self) -> torch.amp.GradScaler:
        """Return what scales the loss in float16, whose smallest numbers are too large for many gradients.

        >>> Place().scaler().is_enabled()
        False
        """
        return torch.amp.GradScaler(self.device.type, enabled=self.precision == torch.float16)

    def total(self, values: Sequence[float]) -> list[float]:
        """Return the sum over all processes of each number.

        >>> Place().total([1.0, 2.0])
        [1.0, 2.0]
        """
        if self.world_size == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        return bool(self.total([float(flag)])[0])

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world_size > 1:
            dist.barrier()


def in_precision(place: Place, precision: str) -> Place:
    """Return the place with responses of this precision; "auto" is bfloat16 on GPUs that are fast at it.

    >>> in_precision(Place(), "auto").precision
    torch.float32
    """
    gains = place.device.type == "cuda" and torch.cuda.get_device_capability(place.device)[0] >= 8
    if precision == "auto":
        precision = "bfloat16" if gains else "float32"
    return replace(place, precision=getattr(torch, precision))


@contextmanager
def joined(device: str | None = None) -> Iterator[Place]:
    """Yield this process's place: alone, or among those that ``torchrun`` started.

    >>> with joined("cpu") as place:
    ...     place.world_size
    1
    """
    kind = _checked_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Place(torch.device(kind))
        return
    if kind == "cuda":
        kind = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(kind)
    already = dist.is_initialized()
    if not already:
        dist.init_process_group("nccl" if kind.startswith("cuda") else "gloo")
    try:
        yield Place(torch.device(kind), dist.get_rank(), dist.get_world_size())
    finally:
        if not already:
            dist.destroy_process_group()


def _checked_device(name: str) -> str:
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"this PyTorch cannot compute on device {name!r}: {reason}; try cpu") from error
    return name


def distribute(model: nn.Module, place: Place, sharding: Sharding) -> nn.Module:
    """Return the model on its device and, with several processes, wrapped so that they learn together.

    Batch normalisation then uses the statistics of all processes, so that the result is that of one process.
    """
    model = model.to(place.device)
    if place.world_size == 1:
        return model
    model = with_common_statistics(model, place.device)
    if sharding == "ddp":
        devices = [place.device.index] if place.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(model, device_ids=devices)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(place.device.type, (place.world_size,))
    for layer in [m for m in model.modules() if isinstance(m, SleepingLayer) and not isinstance(m, Feedback)]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


class CommonBatchNorm2d(LayoutKeepingBatchNorm2d):
    """``nn.BatchNorm2d`` with the statistics of all processes, on the CPU."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize every channel."""
        if not self.training:
            return super().forward(input)
        axes, shape = (0, 2, 3), (1, -1, 1, 1)
        count = _Total.apply(input.new_tensor(input.numel() / input.shape[1]))
        mean = _Total.apply(input.sum(axes)) / count
        distance = input - mean.view(shape)
        variance = _Total.apply(distance.square().sum(axes)) / count
        if self.track_running_stats:
            self._follow(mean.detach(), variance.detach() * count / (count - 1))
        scale = torch.rsqrt(variance + self.eps)
        if self.affine:
            return distance * (scale * self.weight).view(shape) + self.bias.view(shape)
        return distance * scale.view(shape)

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        weight = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
        self.running_var.lerp_(variance.to(self.running_var.dtype), weight)


class _Total(torch.autograd.Function):
    """The sum over all processes, whose gradient is summed in the same way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


def with_common_statistics(model: nn.Module, device: torch.device) -> nn.Module:
    """Let batch normalisation use the statistics of all processes: PyTorch's own way, which is for GPUs, or ours.

    >>> type(with_common_statistics(nn.BatchNorm2d(3), torch.device("cuda"))).__name__
    'SyncBatchNorm'
    """
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.__class__ = CommonBatchNorm2d
    return model


def describe(place: Place) -> dict[str, Any]:
    """Return versions, machine and device, for `environment.json`.

    >>> sorted(describe(Place()))[:3]
    ['commit', 'cores', 'device']
    """
    return {
        "sleepconv": _version("sleepconv"),
        "commit": _commit(),
        "torch": torch.__version__,
        "numpy": _version("numpy"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **machine(),
        "threads": torch.get_num_threads(),
        "processes": place.world_size,
        "device": torch.cuda.get_device_name(place.device) if place.device.type == "cuda" else place.device.type,
        "precision": str(place.precision).removeprefix("torch."),
        "instruction_set": native.instruction_set().name.lower() if native.unavailable() is None else None,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the source tree, with a + if it was changed since, or None if there is none."""
    root = Path(__file__).parents[4]
    if not (root / ".git").exists():
        return None
    git = ["git", "-C", str(root)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run([*git, "status", "--porcelain", "src"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + ("+" if changes.stdout.strip() else "")
