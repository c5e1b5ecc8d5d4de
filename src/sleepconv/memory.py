"""Keep freed memory in the process, which makes training on the CPU more than twice as fast."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Tell glibc not to hand large freed blocks back to the system.

    By default every activation is returned when it is freed and faulted in anew, page by page, when it is allocated
    again; elementwise operations then run at a third of their speed. Call it once, before training.

    Returns:
        whether the setting took effect (it is glibc's; elsewhere nothing is changed).

    >>> keep_freed_memory() in (True, False)
    True
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
