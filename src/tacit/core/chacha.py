"""ChaCha20 (RFC 8439, https://www.rfc-editor.org/rfc/rfc8439): the cryptographic generator behind noise on a device.

A block is 16 words of 32 bits, a function of a 256-bit key, a 32-bit block counter and a 96-bit nonce. To whoever does
not hold the key, the blocks of one key are indistinguishable from independent uniform words as long as no pair of
counter and nonce comes twice. A training step takes a fresh key, each of its parameters a nonce of its own, and the
counter numbers the blocks within a parameter.

This is the plain form, vectorised over blocks; `tacit.core.kernels.chacha_normal` computes the same words on a GPU.
"""

import hashlib
import operator
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError

Words = npt.NDArray[np.uint32]
Nonce = tuple[int, int, int]

KEY_BYTES = 32
BLOCK_WORDS = 16
MAX_BLOCKS = 2**32

_CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4").astype(np.uint32)
_DOUBLE_ROUNDS = 10
_NONCE_DOMAIN = b"tacit/nonce"


def key_words(key: bytes) -> Words:
    """The key as eight words in little-endian order, the form that the block function takes."""
    if len(key) != KEY_BYTES:
        raise InputError(f"key: has {len(key)} bytes, must have {KEY_BYTES}. Take it from Randomness.device_key().")
    return np.frombuffer(key, dtype="<u4").astype(np.uint32)


def nonce_for(name: str) -> Nonce:
    """The nonce of the parameter ``name``: 96 bits of its BLAKE2b hash. It is public, and a key serves one step only.

    Two names share a nonce with probability :math:`2^{-96}`; `nonces_for` checks the names of a whole model.
    """
    digest = hashlib.blake2b(name.encode(), digest_size=12, person=_NONCE_DOMAIN).digest()
    first, second, third = (int(word) for word in np.frombuffer(digest, dtype="<u4"))
    return first, second, third


def nonces_for(names: Iterable[str]) -> dict[str, Nonce]:
    """A nonce for each name, all different: equal ones would add the same noise to two parameters of a step."""
    owners: dict[Nonce, str] = {}
    for name in names:
        nonce = nonce_for(name)
        if nonce in owners:
            raise InputError(
                f"names={name!r}: has the same nonce as {owners[nonce]!r}, so that both would get the same noise. "
                "Give every parameter a name of its own."
            )
        owners[nonce] = name
    return {name: nonce for nonce, name in owners.items()}


def check_nonce(nonce: Nonce) -> Nonce:
    """Three words of 32 bits, as Python's whole numbers."""
    try:
        first, second, third = (operator.index(word) for word in nonce)
    except (TypeError, ValueError):
        first = second = third = -1
    if not all(0 <= word < 2**32 for word in (first, second, third)):
        raise InputError(f"nonce={nonce!r}: must be three whole numbers of 32 bits. Take it from nonce_for(name).")
    return first, second, third


def keystream(key: Words, nonce: Nonce, first_block: int, blocks: int) -> Words:
    """Blocks ``first_block`` to ``first_block + blocks``, as an array of shape (16, blocks): word by block.

    Args:
        key: eight words, see `key_words`.
        nonce: three words of 32 bits.
        first_block: the counter of the first block.
        blocks: how many. A counter never wraps round to words that were used: more than :math:`2^{32}` are refused.
    """
    if first_block < 0 or blocks < 0 or first_block + blocks > MAX_BLOCKS:
        raise InputError(
            f"blocks={blocks!r}: counters {first_block} to {first_block + blocks} leave 32 bits. Take another nonce."
        )
    initial = np.empty((BLOCK_WORDS, blocks), dtype=np.uint32)
    initial[0:4] = _CONSTANTS[:, None]
    initial[4:12] = key[:, None]
    initial[12] = np.arange(first_block, first_block + blocks, dtype=np.uint64)
    initial[13:16] = np.array(check_nonce(nonce), dtype=np.uint32)[:, None]
    state = initial.copy()
    for _ in range(_DOUBLE_ROUNDS):
        _double_round(state)
    state += initial
    return state


def _double_round(state: Words) -> None:
    """Four quarter rounds on the columns of the 4 × 4 state, then four on its diagonals, each four at once."""
    a, b, c, d = state[0:4], state[4:8], state[8:12], state[12:16]
    _quarter_rounds(a, b, c, d)
    rows = (a, np.roll(b, -1, axis=0), np.roll(c, -2, axis=0), np.roll(d, -3, axis=0))
    _quarter_rounds(*rows)
    for shift, (row, turned) in enumerate(zip((a, b, c, d), rows, strict=True)):
        row[:] = np.roll(turned, shift, axis=0)


def _quarter_rounds(a: Words, b: Words, c: Words, d: Words) -> None:
    for target, addend, mixed, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        target += addend
        mixed ^= target
        _rotate_left(mixed, bits)


def _rotate_left(words: Words, bits: int) -> None:
    carried = words >> np.uint32(32 - bits)
    words <<= np.uint32(bits)
    words |= carried
