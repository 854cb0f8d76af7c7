"""Keeps freed memory for the next step.

A step allocates and frees tensors of a few hundred kilobytes. By default glibc returns memory of
that size to the system at once, so that every step pays for fresh pages: 5 to 10 % of a small
CNN's step.

Only tacit's own processes ask for it (the command line and the workers). The limits of glibc
cannot be read back, and setting them ends its automatic adjustment, so a library must not change
them in its caller's process.
"""

from __future__ import annotations

import ctypes
import sys

# from glibc's malloc.h
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LIMIT = 1 << 28  # larger allocations are returned as before


def keep_freed_memory() -> bool:
    """Asks glibc to keep freed allocations below 256 MB for as long as this process lives.

    Where there is no glibc, it does nothing and returns False.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    if not mallopt(M_MMAP_THRESHOLD, LIMIT):  # some versions refuse so large a limit
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, LIMIT))
