"""Keeps freed memory for the next step.

A step allocates and frees tensors of a few hundred kilobytes, and glibc by default hands such blocks back to the
system at once, so that every step pays for fresh pages: 5 to 10 % of a small CNN's step.
"""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
LIMIT = 1 << 28  # larger blocks go back as before


def keep_freed_memory() -> bool:
    """Asks glibc to keep freed blocks below 256 MB; where there is no glibc, does nothing and returns False."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(option, LIMIT) for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD))
