"""Lots drawn ahead of the steps that take them, so that a fast step does not wait for its sampler."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

_BLOCK = 16

Indices = npt.NDArray[np.int64]


def drawn_ahead(draw: Callable[[int], Indices], first: int, last: int) -> Iterator[Indices]:
    """``draw(step)`` for the steps from ``first`` up to ``last``, blocks of them in a thread beside the training.

    A step's lot depends on the step alone, so it does not matter when it is drawn, nor that some are never taken.
    """

    def block(start: int) -> list[Indices]:
        return [draw(step) for step in range(start, min(start + _BLOCK, last))]

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tacit-sampler") as pool:
        coming = pool.submit(block, first)
        for start in range(first, last, _BLOCK):
            ready = coming.result()
            coming = pool.submit(block, start + _BLOCK)
            yield from ready
