"""The machine's memory, and a setting of the C library that makes training on the CPU more than twice as fast."""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Keep large freed blocks of memory in the process instead of returning them to the system.

    By default glibc returns the memory of every activation when it is freed, and the system maps it again, page by
    page, at the next allocation; elementwise operations then run at a third of their speed. Call this once, before
    training.

    Returns:
        Whether the setting took effect; without glibc nothing is changed.

    >>> keep_freed_memory() in (True, False)
    True
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))


def machine_memory() -> int | None:
    """Return the bytes of memory that this process may use: the machine's, or its container's limit; None if unknown.

    >>> (machine_memory() or 2**30) > 2**20
    True
    """
    found = []
    with suppress(AttributeError, ValueError, OSError):  # Windows, or a system without these names
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such control group, or "max"
            found.append(int(Path(limit).read_text()))
    return min((size for size in found if size > 0), default=None)
