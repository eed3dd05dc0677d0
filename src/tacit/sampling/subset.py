r"""Uniform subsets of a given size, as a function of a key.

The law. A key of ChaCha20 gives independent uniform words (`tacit.core.chacha`), and each word a position among n
examples, or none: :math:`w n = i\,2^{32} + r` with :math:`0 \le r < 2^{32}` gives position i unless
:math:`r < 2^{32} \bmod n` (Lemire, https://arxiv.org/abs/1805.10941). Exactly :math:`\lfloor 2^{32} / n \rfloor` words
give each position, so the positions are independent and exactly uniform. Beyond :math:`2^{32}` examples a position is
the lowest :math:`\lceil \log_2 n \rceil` bits of two words, if it is below n.

The subset of size k holds the first k distinct positions. Renaming the examples by a permutation renames the sequence
and leaves its law as it is, so all sets of size k are equally likely. Where k is more than half of n, the first n - k
distinct positions are left out instead: the complement of a uniform subset is uniform.

Words are taken in rounds, as many as positions are missing. A round thus never finds more than are missing, and the
set does not depend on how the words were cut into rounds: ``subset.cpp`` gives the same one (`compiled_subset`).
"""

import numpy as np
import numpy.typing as npt

from tacit.core import chacha
from tacit.core.errors import InputError

Indices = npt.NDArray[np.int64]

WORDS = 2**32
_NONCE = (0, 0, 0)  # a key serves one subset only
_SPARSE = 64  # a subset is sorted where it is less than one in so many, and marked in the whole otherwise


def uniform_subset(examples: int, size: int, key: bytes) -> Indices:
    """The subset of ``range(examples)`` that belongs to ``key``, sorted, in time and memory O(size).

    Every subset of this size is equally likely, see the module; none and all of the examples are sizes as well.

    Args:
        examples: n, at least 0.
        size: from 0 to n.
        key: 32 bytes, used for nothing else.
    """
    check_size(examples, size)
    positions = _Positions(examples, key)
    if size * _SPARSE < examples:
        chosen = np.empty(0, dtype=np.int64)
        while len(chosen) < size:
            drawn = np.sort(np.concatenate([chosen, positions.take(size - len(chosen))]))
            chosen = drawn[np.diff(drawn, prepend=-1) > 0]
        return chosen
    fewer = min(size, examples - size)
    marks = np.zeros(examples, dtype=np.bool_)
    missing = fewer
    while missing:
        marks[positions.take(missing)] = True
        missing = fewer - int(np.count_nonzero(marks))
    return np.flatnonzero(marks if fewer == size else ~marks)


def check_size(examples: int, size: int) -> None:
    """Refuses what no subset of this many examples has."""
    if not 0 <= size <= examples:
        raise InputError(f"size={size!r}: must be from 0 to the {examples} examples. Count them again.")


class _Positions:
    """The positions that a key's words give, in order."""

    def __init__(self, examples: int, key: bytes) -> None:
        self._examples, self._key = examples, chacha.key_words(key)
        self._blocks = 0
        self._words = np.empty(0, dtype="<u4")

    def take(self, count: int) -> Indices:
        """The positions of as many further words (or pairs of them), without those words that give none."""
        if self._examples <= WORDS:
            return lemire(self._take_words(count), self._examples)
        pairs = self._take_words(2 * count).view("<u8") & np.uint64(2 ** (self._examples - 1).bit_length() - 1)
        return pairs[pairs < self._examples].astype(np.int64)

    def _take_words(self, count: int) -> npt.NDArray[np.uint32]:
        if count > len(self._words):
            fresh = np.empty((count // 8 + 1) * chacha.BLOCK_BYTES, dtype=np.uint8)  # twice as many: others follow
            chacha.write_keystream(fresh, self._key, _NONCE, self._blocks)
            self._blocks += len(fresh) // chacha.BLOCK_BYTES
            self._words = np.concatenate([self._words, fresh.view("<u4")])
        taken, self._words = self._words[:count], self._words[count:]
        return taken


def lemire(words: npt.NDArray[np.uint32], examples: int) -> Indices:
    """Uniform positions below ``examples``, at most :math:`2^{32}`, from uniform words; see the module."""
    products = words * np.uint64(examples)
    positions = (products >> np.uint64(32)).astype(np.int64)
    threshold = WORDS % examples
    return positions if threshold == 0 else positions[products.astype(np.uint32) >= threshold]
