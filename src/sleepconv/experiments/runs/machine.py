"""The machine that runs are computed on."""

import os
import platform
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Return the processor's name and how many cores there are, as `environment.json` has them.

    >>> sorted(machine())
    ['cores', 'processor']
    """
    return {"processor": _processor(), "cores": os.cpu_count()}


def available_cores() -> int:
    """Return the number of cores that this process may use.

    >>> available_cores() > 0
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
