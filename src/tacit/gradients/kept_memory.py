"""Freed memory stays with the process, so that every step finds the pages of the step before.

The C library of Linux gives large blocks back to the system when they are freed, and gets them again one page at a
time, each filled with zeros first. A training step frees the same blocks that the next one asks for, and where
per-example gradients are kept they are large.
"""

import contextlib
import ctypes
import functools
import gc
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_LARGE = 2**30  # bytes; a block of this size is worth its pages


@functools.cache
def keep_freed_memory() -> None:
    """Asks the C library to keep what is freed, for the rest of the process. Where it cannot, nothing happens.

    The process then holds on to the most that it ever needed at once, as a GPU's allocator does.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        library = _c_library()
        library.mallopt(_TRIM_THRESHOLD, _LARGE)
        library.mallopt(_MMAP_THRESHOLD, _LARGE)


def give_back_freed_memory(*, collect: bool = False) -> None:
    """Gives back, once, what was freed so far: after preparations that needed more, or other blocks, than steps do.

    Args:
        collect: what refers to itself, too, as traced graphs do; in a large process that takes a while.
    """
    if collect:
        gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        _c_library().malloc_trim(0)


def _c_library() -> ctypes.CDLL:
    if sys.platform != "linux":
        raise OSError("not the C library of Linux")
    return ctypes.CDLL("libc.so.6")
