"""Freed memory stays with the process, so that every step finds the pages of the step before.

The C library of Linux gives large blocks back to the system when they are freed, and gets them again one page at a
time, each filled with zeros first. A training step frees the same blocks that the next one asks for, and where
per-example gradients are kept they are large.
"""

import contextlib
import ctypes
import functools
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_LARGE = 2**30  # bytes; a block of this size is worth its pages


@functools.cache
def keep_freed_memory() -> None:
    """Asks the C library to keep what is freed, for the rest of the process. Where it cannot, nothing happens.

    The process then holds on to the most that it ever needed at once, as a GPU's allocator does.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            library = ctypes.CDLL("libc.so.6")
            library.mallopt(_TRIM_THRESHOLD, _LARGE)
            library.mallopt(_MMAP_THRESHOLD, _LARGE)
