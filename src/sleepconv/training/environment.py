"""What a run was computed with."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from sleepconv.kernels import native
from sleepconv.training.parallel import Place


def describe(place: Place) -> dict[str, Any]:
    """Versions, machine and device, for `environment.json`.

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
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": place.world_size,
        "device": torch.cuda.get_device_name(place.device) if place.device.type == "cuda" else place.device.type,
        "precision": "bfloat16" if place.bfloat16 else "float32",
        "instruction_set": native.instruction_set().name.lower() if native.unavailable() is None else None,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _commit() -> str | None:
    """The commit of the source tree this was imported from, with a + if it was changed since; None if installed."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    git = ["git", "-C", str(root)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run([*git, "status", "--porcelain", "src"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + ("+" if changes.stdout.strip() else "")
