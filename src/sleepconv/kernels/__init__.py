"""Ways to compute a locally connected layer; one file each, with the same three functions.

``forward(x, weight, geometry)``, ``input_gradient(grad, weight, geometry)`` and
``weight_gradient(x, grad, geometry)``. Activations have the logical shape (batch, channels, *space); results lie in
memory position by position (see ``geometry``), whatever the layout of what came in.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from torch import Tensor

from sleepconv.kernels import batched, native, reference
from sleepconv.kernels.geometry import Geometry

__all__ = ["KERNELS", "Geometry", "kernel_for", "use_kernel"]

KERNELS: dict[str, ModuleType] = {"reference": reference, "batched": batched, "native": native}

_chosen: str | None = os.environ.get("SLEEPCONV_KERNEL") or None
_warned = False


def kernel_for(tensor: Tensor) -> ModuleType:
    """The kernel that computes on this tensor: the native one on the CPU where it is there, else ``batched``.

    >>> import torch
    >>> with use_kernel("reference"):
    ...     kernel_for(torch.zeros(1)).__name__
    'sleepconv.kernels.reference'
    """
    if _chosen is not None:
        if _chosen == "native" and tensor.device.type != "cpu":
            raise ValueError(f"the native kernel computes on the CPU, not on {tensor.device}; choose 'batched'")
        return _named(_chosen)
    if tensor.device.type != "cpu":
        return batched
    if native.unavailable() is None:
        return native
    _warn_once()
    return batched


@contextmanager
def use_kernel(name: str) -> Iterator[None]:
    """Compute with the named kernel inside this context (the environment's SLEEPCONV_KERNEL does so everywhere).

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


def _named(name: str) -> ModuleType:
    if name not in KERNELS:
        raise ValueError(f"no kernel is called {name!r}; there are {', '.join(KERNELS)}")
    if name == "native" and (reason := native.unavailable()):
        raise ValueError(f"the native kernel cannot be used: {reason}; use 'batched' instead")
    return KERNELS[name]


def _warn_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"sleepconv computes through PyTorch alone, which is several times slower: {native.unavailable()}. "
            "Reinstall sleepconv where a C++ compiler is found to get the native kernel.",
            RuntimeWarning,
            stacklevel=2,
        )
