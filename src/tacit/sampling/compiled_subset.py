"""`uniform_subset` as machine code, for many steps at once and in a thread that has nothing to do with Python.

A thread of Python would hinder the one that trains: only one of them runs at a time, and each may wait long for its
turn. The subsets are the same, bit for bit. The source is ``subset.cpp``, which `tacit.core.native` compiles.
"""

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tacit.core import chacha, native
from tacit.core.errors import InputError, UnsupportedError
from tacit.sampling.subset import WORDS, Indices, check_size, uniform_subset

_SOURCE = Path(__file__).with_name("subset.cpp")
_SPARSE = 2048  # a subset is sorted where it is less than one in so many, and marked in the whole otherwise
_CHECKED = ((0, 300, 999, 1000), 1000), ((100,), 3 * 2**30)  # sizes and examples: all ways through the source


class Drawing:
    """Subsets that are being drawn: `uniform_subset` for many sizes, each with a key of its own.

    Args:
        library: the compiled source.
        examples: at most :math:`2^{32}`.
        sizes, keys: as many of both.
    """

    _thread: int | None = None

    def __init__(self, library: ctypes.CDLL, examples: int, sizes: Sequence[int], keys: Sequence[bytes]) -> None:
        _check(examples, sizes, keys)
        self._library, self._sizes = library, sizes
        sparse = examples // _SPARSE
        marked = max(sizes, default=0) >= sparse
        self._found = np.empty(sum(sizes), dtype=np.int64)
        self._held = (  # until the thread has ended
            np.array(sizes, dtype=np.int64),
            np.frombuffer(b"".join(keys), dtype="<u4").astype(np.uint32),
            np.empty(examples // 64 + 1 if marked else 0, dtype=np.uint64),
            self._found,
        )
        places = [array.ctypes.data for array in self._held]
        self._thread = library.tacit_begin_subsets(len(sizes), examples, sparse, *places)

    def result(self) -> list[Indices]:
        """The subsets, sorted, as soon as they are there."""
        self._end()
        ends = itertools.accumulate(self._sizes)
        return [self._found[end - size : end] for size, end in zip(self._sizes, ends, strict=True)]

    def __del__(self) -> None:
        self._end()  # nothing may be written to memory that was given back

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._library.tacit_end_subsets(thread)


Subsets = Callable[[int, Sequence[int], Sequence[bytes]], Drawing]
"""Begins to draw subsets of so many examples, of these sizes, with these keys."""


def compiled_subsets() -> Subsets:
    """What begins a `Drawing`.

    Raises whatever the compiler does, and `UnsupportedError` where there is none or its subsets are not the ordinary
    ones.
    """
    subsets = functools.partial(Drawing, _compiled())
    for sizes, examples in _CHECKED:
        keys = [bytes([number] * chacha.KEY_BYTES) for number in range(len(sizes))]
        ordinary = [uniform_subset(examples, size, key) for size, key in zip(sizes, keys, strict=True)]
        if not all(map(np.array_equal, subsets(examples, sizes, keys).result(), ordinary)):
            raise UnsupportedError(
                "compiled subsets: are not the ordinary ones on this machine. Use another compiler (CXX)."
            )
    return subsets


@functools.cache
def _compiled() -> ctypes.CDLL:
    library = native.load(_SOURCE, flags=("-pthread",))
    library.tacit_begin_subsets.argtypes = (*[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 4)
    library.tacit_begin_subsets.restype = ctypes.c_void_p
    library.tacit_end_subsets.argtypes = (ctypes.c_void_p,)
    library.tacit_end_subsets.restype = None
    return library


def _check(examples: int, sizes: Sequence[int], keys: Sequence[bytes]) -> None:
    if examples > WORDS:
        raise UnsupportedError(f"examples={examples!r}: must be at most {WORDS} for compiled code. Use uniform_subset.")
    for size in sizes:
        check_size(examples, size)
    if [len(key) for key in keys] != [chacha.KEY_BYTES] * len(sizes):
        raise InputError(f"keys: must be {len(sizes)} of {chacha.KEY_BYTES} bytes. Take one for each size.")
