"""Lots drawn some steps ahead of those that take them, so that a fast step does not wait for its lot."""

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

_BLOCK = 16  # drawn one after another, which is faster than each in its turn: everything for it is at hand
_TRIED = 4  # draws are timed, since the first one takes long in any case
_LONG = 1e-3  # seconds; two threads of Python hinder each other more than a short draw delays a step

Indices = npt.NDArray[np.int64]


def drawn(draw: Callable[[int], Indices], first: int, last: int) -> Iterator[Indices]:
    """``draw(step)`` for the steps from ``first`` up to ``last``; in a thread beside the training where that pays.

    A step's lot depends on the step alone, so it does not matter when it is drawn, nor that some are never taken.
    """
    shortest = math.inf
    for step in range(first, min(first + _TRIED, last)):
        started = time.perf_counter()
        lot = draw(step)
        shortest = min(shortest, time.perf_counter() - started)
        yield lot

    def block(start: int) -> list[Indices]:
        return [draw(step) for step in range(start, min(start + _BLOCK, last))]

    starts = range(first + _TRIED, last, _BLOCK)
    for lots in _ahead(block, starts) if shortest > _LONG else map(block, starts):
        yield from lots


def _ahead(block: Callable[[int], list[Indices]], starts: range) -> Iterator[list[Indices]]:
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tacit-sampler") as pool:
        coming = pool.submit(block, starts.start)
        for start in starts:
            ready = coming.result()
            coming = pool.submit(block, start + starts.step)
            yield ready
