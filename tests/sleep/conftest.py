"""Two real processes; and a pretended device, whose real tensors refuse to meet those of the CPU as CUDA's do."""

import copy
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("privateuseone:0")  # PyTorch's name for a device that others bring along
MODULE = SimpleNamespace(
    get_amp_supported_dtype=lambda: [torch.float16],
    is_available=lambda: False,  # nn.DataParallel asks
    _is_in_bad_fork=lambda: False,
    manual_seed_all=lambda seed: None,
)
BETWEEN_DEVICES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


@pytest.fixture(scope="session")
def on_two_processes() -> Callable[[Callable[[int, Path], None], Path], None]:
    """``on_two_processes(work, folder)`` calls work(rank, folder) on both; results are to be written there."""
    # Both are forked from a process that has imported all of PyTorch that they use, and used nothing.
    multiprocessing.set_forkserver_preload(["torch._dynamo", "torch.distributed.fsdp", "sleepconv.sleep.lightning"])

    def start(work: Callable[[int, Path], None], folder: Path) -> None:
        torch.multiprocessing.start_processes(_work_and_leave, (work, folder), 2, start_method="forkserver")

    return start


def _work_and_leave(rank: int, work: Callable[[int, Path], None], folder: Path) -> None:
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    work(rank, folder)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # all is written; on a busy machine gloo's threads now and then abort a process that unwinds


class Elsewhere(Tensor):
    """A tensor on the pretended device, computed on the CPU."""

    @staticmethod
    def __new__(cls, content: Tensor) -> "Elsewhere":
        layout = {"strides": content.stride(), "storage_offset": content.storage_offset(), "dtype": content.dtype}
        return Tensor._make_wrapper_subclass(cls, content.shape, **layout, device=DEVICE)

    def __init__(self, content: Tensor) -> None:
        self.content = content

    def tolist(self) -> Any:
        return self.content.tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _compute(function, args, kwargs or {})


class _DeviceAtWork(TorchDispatchMode):
    """Sees the calls that make tensors, too."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and to import the compiler takes seconds

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _compute(function, args, kwargs or {})


def _compute(function: Any, args: tuple, kwargs: dict) -> Any:
    given = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)]
    _check_one_device(function, args, given)
    device = kwargs.get("device") or (DEVICE if any(isinstance(t, Elsewhere) for t in given) else torch.device("cpu"))
    if isinstance(kwargs.get("generator"), torch.Generator) and device.type == DEVICE.type:
        raise RuntimeError(f"expected a generator of the device {device}, but {function} got one of the CPU")
    if "device" in kwargs:
        kwargs = {**kwargs, "device": "cpu"}
    contents = tree_map_only(Elsewhere, lambda tensor: tensor.content, (args, kwargs))
    result = function(*contents[0], **contents[1])
    for tensor in given:
        if isinstance(tensor, Elsewhere) and tensor.content is result:
            return tensor  # changed in place
    return tree_map_only(Tensor, Elsewhere, result) if device.type == DEVICE.type else result


def _check_one_device(function: Any, args: tuple, given: list[Tensor]) -> None:
    """CUDA's rule: numbers, copies and the places of an index may come from the CPU."""
    if function is torch.ops.aten.index.Tensor and isinstance(args[0], Elsewhere):
        return
    here = [tensor for tensor in given if not isinstance(tensor, Elsewhere) and tensor.dim()]
    mixed = here and any(isinstance(tensor, Elsewhere) for tensor in given)
    if mixed and function not in BETWEEN_DEVICES:
        shapes = [tuple(tensor.shape) for tensor in here]
        raise RuntimeError(f"expected all tensors on one device, but {function} found {shapes} on the CPU")


@pytest.fixture
def on_another_device() -> Callable[[nn.Module], AbstractContextManager[nn.Module]]:
    """``with on_another_device(model) as there``: a copy of it on the pretended device, which is there meanwhile."""
    if not hasattr(torch, DEVICE.type):
        from torch.utils.backend_registration import _DummyDeviceGuard  # newer than the least PyTorch we support

        torch._C._acc.register_python_privateuseone_device_guard(_DummyDeviceGuard())
        torch._register_device_module(DEVICE.type, MODULE)
    return _on_another_device


@contextmanager
def _on_another_device(model: nn.Module) -> Iterator[nn.Module]:
    there = copy.deepcopy(model)
    for module in there.modules():
        module._parameters.update({n: nn.Parameter(Elsewhere(p.detach())) for n, p in _held(module._parameters)})
        module._buffers.update({n: Elsewhere(b) for n, b in _held(module._buffers)})
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(1.0, device=...) begins on the CPU, and is seen
    try:
        with _DeviceAtWork():
            yield there
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


def _held(tensors: Mapping[str, Any]) -> list[tuple[str, Tensor]]:
    return [(name, tensor) for name, tensor in tensors.items() if tensor is not None]
