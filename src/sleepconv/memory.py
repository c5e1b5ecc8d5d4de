"""A setting of the C library that makes training on the CPU more than twice as fast."""

import ctypes
import sys

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
