"""`uniform_subset` as machine code, for many steps in one call, which holds no lock of Python while it draws.

The subsets are the same, bit for bit. The source is ``subset.cpp``, which `tacit.core.native` compiles.
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

Subsets = Callable[[int, Sequence[int], Sequence[bytes]], list[Indices]]
"""`uniform_subset` for many sizes, each with a key of its own."""


def compiled_subsets() -> Subsets:
    """`uniform_subset`, compiled, for many sizes with a key each; beyond :math:`2^{32}` examples the ordinary one.

    Raises whatever the compiler does, and `UnsupportedError` where there is none or its subsets are not the ordinary
    ones.
    """
    subsets = _compiled()
    for sizes, examples in _CHECKED:
        keys = [bytes([number] * chacha.KEY_BYTES) for number in range(len(sizes))]
        if not all(map(np.array_equal, subsets(examples, sizes, keys), _ordinary(examples, sizes, keys))):
            raise UnsupportedError(
                "compiled subsets: are not the ordinary ones on this machine. Use another compiler (CXX)."
            )
    return subsets


def _ordinary(examples: int, sizes: Sequence[int], keys: Sequence[bytes]) -> list[Indices]:
    return [uniform_subset(examples, size, key) for size, key in zip(sizes, keys, strict=True)]


@functools.cache
def _compiled() -> Subsets:
    draw = native.load(_SOURCE).tacit_uniform_subsets
    draw.argtypes = (*[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 4)
    draw.restype = None

    def subsets(examples: int, sizes: Sequence[int], keys: Sequence[bytes]) -> list[Indices]:
        if examples > WORDS:
            return _ordinary(examples, sizes, keys)
        for size in sizes:
            check_size(examples, size)
        if [len(key) for key in keys] != [chacha.KEY_BYTES] * len(sizes):
            raise InputError(f"keys: must be {len(sizes)} of {chacha.KEY_BYTES} bytes. Take one for each size.")
        counts = np.array(sizes, dtype=np.int64)
        words = np.frombuffer(b"".join(keys), dtype="<u4").astype(np.uint32)
        sparse = examples // _SPARSE
        marks = np.empty(examples // 64 + 1 if max(sizes, default=0) >= sparse else 0, dtype=np.uint64)
        found = np.empty(sum(sizes), dtype=np.int64)
        draw(len(sizes), examples, sparse, *(array.ctypes.data for array in (counts, words, marks, found)))
        ends = list(itertools.accumulate(sizes))
        return [found[end - size : end] for size, end in zip(sizes, ends, strict=True)]

    return subsets
