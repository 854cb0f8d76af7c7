"""Keeps freed memory for the next step.

A step allocates and frees tensors of a few hundred kilobytes, and glibc by default hands such blocks back to the
system at once, so that every step pays for fresh pages: 5 to 10 % of a small CNN's step.

Only processes of our own ask for it (the command line's, and workers): glibc's limits cannot be read back, and setting
them ends its own adjustment of them, so that a library must not do so to the process of whoever calls it.
"""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
LIMIT = 1 << 28  # larger blocks go back as before


def keep_freed_memory() -> bool:
    """Asks glibc to keep freed blocks below 256 MB, for as long as this process lives.

    Where there is no glibc, it does nothing and returns False.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mapped = mallopt(M_MMAP_THRESHOLD, LIMIT)  # some versions refuse so much; then nothing changes
    return bool(mapped and mallopt(M_TRIM_THRESHOLD, LIMIT))
