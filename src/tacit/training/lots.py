"""Lots drawn some steps ahead of those that take them, so that a fast step does not wait for its lot."""

import math
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tacit.core.errors import UnsupportedError
from tacit.core.randomness import Randomness
from tacit.sampling import Sampler
from tacit.sampling.compiled_subset import compiled_subsets
from tacit.sampling.subset import WORDS
from tacit.sampling.subset_sampler import SubsetSampler

_BLOCK = 16  # drawn one after another, which is faster than each in its turn: everything for it is at hand
_TRIED = 4  # draws of the first block, which is short, since the very first one takes long in any case
_LONG = 1e-3  # seconds; two threads of Python hinder each other more than a short draw delays a step

Indices = npt.NDArray[np.int64]


class Coming(Protocol):
    """A block of lots that is being drawn."""

    def result(self) -> list[Indices]:
        """The lots, as soon as they are there."""
        ...


Begin = Callable[[range], Coming]


def drawn(sampler: Sampler, examples: int, randomness: Randomness, first: int, last: int) -> Iterator[Indices]:
    """The sampler's lots for the steps from ``first`` up to ``last``; in a thread beside the training where that pays.

    It pays where the lots are drawn by compiled code, which needs nothing of the interpreter, or where a draw takes
    long. The code is compiled beside the training too, and until then lots are drawn as they are needed.

    A step's lot depends on the step alone, so it does not matter when it is drawn, nor that some are never taken.
    """
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tacit-sampler")
    try:
        compiling = pool.submit(_compiled, sampler, examples, randomness)
        ordinary = _Timed(sampler, examples, randomness)
        step = first
        while step < last and not (compiling.done() and (compiling.result() or ordinary.is_long)):
            block = range(step, min(step + (_TRIED if step == first else _BLOCK), last))
            yield from ordinary(block)
            step = block.stop
        if step < last:
            yield from _ahead(compiling.result() or (lambda steps: pool.submit(ordinary, steps)), step, last)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # a run does not wait for a compiler that it needs no more


class _Timed:
    """Draws one lot after another, and knows whether that takes long."""

    def __init__(self, sampler: Sampler, examples: int, randomness: Randomness) -> None:
        self._sampler, self._examples, self._randomness = sampler, examples, randomness
        self._shortest = math.inf

    @property
    def is_long(self) -> bool:
        """Whether the shortest draw so far was a long one."""
        return _LONG < self._shortest < math.inf

    def __call__(self, steps: range) -> list[Indices]:
        return [self._draw(step) for step in steps]

    def _draw(self, step: int) -> Indices:
        started = time.perf_counter()
        lot = self._sampler.indices(step, self._examples, self._randomness)
        self._shortest = min(self._shortest, time.perf_counter() - started)
        return lot


def _compiled(sampler: Sampler, examples: int, randomness: Randomness) -> Begin | None:
    way: object = type(sampler).indices
    if not isinstance(sampler, SubsetSampler) or way is not SubsetSampler.indices or examples > WORDS:
        return None  # it draws in a way of its own
    try:
        subsets = compiled_subsets()
    except (OSError, subprocess.SubprocessError, UnsupportedError):  # without a compiler the ordinary way does
        return None
    return lambda steps: sampler.begin(steps, examples, randomness, subsets)


def _ahead(begin: Begin, first: int, last: int) -> Iterator[Indices]:
    def block(start: int) -> range:
        return range(start, min(start + _BLOCK, last))

    coming = begin(block(first))
    for start in range(first, last, _BLOCK):
        ready = coming.result()
        coming = begin(block(start + _BLOCK))
        yield from ready
