"""Ways to compute a locally connected layer and its weight sharing; one module each, all with the same contract.

A kernel is a module with the four functions of ``Kernel``. To add one, list it in ``KERNELS`` and let ``kernel_for``
choose it for the tensors that it is made for; ``tests/kernels`` compares it with ``reference``.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from torch import Tensor

from sleepconv.kernels import batched, native, reference, triton
from sleepconv.kernels.geometry import Geometry

__all__ = ["KERNELS", "Geometry", "Kernel", "kernel_for", "use_kernel"]


class Kernel(Protocol):
    """The contract of a kernel module.

    Arguments have been validated: tensors are floating point, share one dtype and device, and fit the geometry. They
    may have any memory layout. Activations have the shape (batch, channels, *space); weights that of
    ``Geometry.weight_shape``. Results have the dtype of the arguments. No function takes part in autograd:
    ``sleepconv.functional.operators`` registers the derivatives.

    >>> import torch
    >>> weight = torch.tensor([[1.0], [10.0], [3.0]])
    >>> KERNELS["reference"].share_(weight, torch.tensor([0, 1, 0]))
    >>> weight.flatten().tolist()
    [2.0, 10.0, 2.0]
    """

    __name__: str

    def forward(self, x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
        """Return the responses, stored position by position (``geometry.empty_activations``)."""

    def input_gradient(self, grad: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
        """Return the gradient with respect to the input, stored position by position."""

    def weight_gradient(self, x: Tensor, grad: Tensor, geometry: Geometry) -> Tensor:
        """Return the gradient with respect to the weight, contiguous."""

    def share_(self, weight: Tensor, grids: Tensor) -> None:
        """Replace the filter of each neuron by the mean over its grid, in place.

        ``grids`` is an int64 tensor on the CPU that holds the number of each neuron's grid; its shape is that of the
        leading axes of ``weight``, whatever their number, and the remaining axes belong to the filter. Numbers may
        be in any order and may be missing; neurons of one grid need not form a lattice, but usually do. The mean of
        half-precision filters is computed in float32 or better. The change must increment the version of ``weight``,
        as any PyTorch operation in place does.
        """


KERNELS: dict[str, Kernel] = {"reference": reference, "batched": batched, "native": native, "triton": triton}

_chosen: str | None = os.environ.get("SLEEPCONV_KERNEL") or None
_warned: set[str] = set()


def kernel_for(tensor: Tensor) -> Kernel:
    """Return the kernel that computes on this tensor.

    ``native`` on the CPU and ``triton`` on NVIDIA and AMD GPUs, if available; otherwise ``batched``.

    >>> import torch
    >>> with use_kernel("reference"):
    ...     kernel_for(torch.zeros(1)).__name__
    'sleepconv.kernels.reference'
    """
    device = tensor.device.type
    if _chosen is not None:
        _check_runs_on(_chosen, tensor)
        return _named(_chosen)
    if device == "cpu" and native.unavailable():
        _warn_once(
            f"{native.unavailable()}. Reinstall sleepconv where a C++ compiler is found to get the native kernel."
        )
    elif device == "cuda" and triton.unavailable():
        _warn_once(f"{triton.unavailable()}.")
    elif device in ("cpu", "cuda"):
        return native if device == "cpu" else triton
    return batched


@contextmanager
def use_kernel(name: str) -> Iterator[None]:
    """Compute with the named kernel inside this context (set SLEEPCONV_KERNEL in the environment to do so everywhere).

    >>> with use_kernel("reference"):
    ...     pass
    """
    global _chosen
    _named(name)
    before, _chosen = _chosen, name
    try:
        yield
    finally:
        _chosen = before


def _named(name: str) -> Kernel:
    if name not in KERNELS:
        raise ValueError(f"unknown kernel {name!r}; available: {', '.join(KERNELS)}")
    if name in ("native", "triton") and (reason := KERNELS[name].unavailable()):  # type: ignore[attr-defined]
        raise ValueError(f"the {name} kernel is not available: {reason}; use 'batched' instead")
    return KERNELS[name]


def _check_runs_on(name: str, tensor: Tensor) -> None:
    device = tensor.device.type
    if name == "native" and device != "cpu":
        raise ValueError(f"the native kernel runs on the CPU only, got a tensor on {tensor.device}; use 'batched'")
    if name == "triton" and device != "cuda" and not triton.interpreted():
        raise ValueError(
            f"the triton kernel runs on NVIDIA and AMD GPUs only, got a tensor on {tensor.device}; use 'batched', or "
            "set TRITON_INTERPRET=1 before Python starts to run it, slowly, in Triton's interpreter"
        )


def _warn_once(reason: str) -> None:
    if reason not in _warned:
        _warned.add(reason)
        warnings.warn(
            f"sleepconv falls back to plain PyTorch, which is several times slower: {reason}",
            RuntimeWarning,
            stacklevel=3,
        )
