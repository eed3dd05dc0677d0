"""Philox4x32-10 (Salmon and others, 2011, https://doi.org/10.1145/2063384.2063405): the generator of the fast mode.

It turns a counter of 128 bits into four words under a key of 64 bits. It passes statistical tests and is not
cryptographic. Blocks are laid out as ChaCha20's, so that whatever takes the one can take the other: 16 words from eight
words of key, a 32-bit block counter and a 96-bit nonce. Counter and nonce are Philox's counter, and each quarter of a
block takes two words of the key as a key of its own.

On a CPU the words come from the package randomgen; `tacit.core.kernels.chacha_normal` computes the same on a GPU.
"""

import numpy as np
import numpy.typing as npt
from randomgen.philox import Philox

from tacit.core import chacha
from tacit.core.chacha import Nonce, Words


def write_keystream(out: npt.NDArray[np.uint8], key: Words, nonce: Nonce, first_block: int) -> None:
    """Fills ``out`` with whole blocks from ``first_block`` on; the arguments of `tacit.core.chacha.write_keystream`."""
    blocks = chacha.count_blocks(out, first_block)
    words = out.view("<u4").reshape(blocks, 4, 4)
    counter = _joined(first_block, *chacha.check_nonce(nonce))
    for quarter in range(4):
        words[:, quarter] = _words(_joined(*key[2 * quarter :][:2]), counter, blocks)


def _words(key: int, counter: int, count: int) -> Words:
    """The four words of each of ``count`` counters."""
    before = (counter - 1) % 2**128  # randomgen counts on before it draws
    source = np.random.Generator(Philox(key=key, counter=before, number=4, width=32))
    return source.integers(2**32, size=(count, 4), dtype=np.uint32)


def _joined(*words: int) -> int:
    """One number of words of 32 bits, the lowest first."""
    return sum(int(word) << 32 * place for place, word in enumerate(words))
