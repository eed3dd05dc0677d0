"""ChaCha20 (RFC 8439, https://www.rfc-editor.org/rfc/rfc8439): the cryptographic generator behind noise on a device.

A block is 16 words of 32 bits, a function of a 256-bit key, a 32-bit block counter and a 96-bit nonce. To whoever does
not hold the key, the blocks of one key are indistinguishable from independent uniform words as long as no pair of
counter and nonce comes twice. A training step takes a fresh key, each of its parameters a nonce of its own, and the
counter numbers the blocks within a parameter.

On a CPU the blocks come from OpenSSL, by way of the package cryptography; `tacit.core.kernels.chacha_normal` computes
the same words on a GPU.
"""

import hashlib
import operator
import struct
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from tacit.core.errors import InputError

Words = npt.NDArray[np.uint32]
Nonce = tuple[int, int, int]

KEY_BYTES = 32
BLOCK_WORDS = 16
BLOCK_BYTES = 4 * BLOCK_WORDS
MAX_BLOCKS = 2**32

_NONCE_DOMAIN = b"tacit/nonce"
_ZEROS = memoryview(bytes(2**16))  # a cipher adds its words to a text: of zeros they are bare; small enough for a cache


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
    if blocks < 0:
        raise InputError(f"blocks={blocks!r}: must be at least 0. Count them again.")
    serial = np.empty((blocks, BLOCK_WORDS), dtype="<u4")
    write_keystream(serial.reshape(-1).view(np.uint8), key, nonce, first_block)
    return np.ascontiguousarray(serial.T, dtype=np.uint32)


def write_keystream(out: npt.NDArray[np.uint8], key: Words, nonce: Nonce, first_block: int) -> None:
    """Fills ``out`` with whole blocks from ``first_block`` on, each serialised as RFC 8439 has it: 64 bytes in order.

    OpenSSL computes them and needs no lock of the interpreter meanwhile, so that threads may fill parts of one array.

    Args:
        out: a contiguous array of bytes, 64 for each block.
        key: eight words, see `key_words`.
        nonce: three words of 32 bits.
        first_block: the counter of the first block; that of the last must stay below :math:`2^{32}`, past which
            OpenSSL would count on into the nonce.
    """
    if count_blocks(out, first_block) == 0:
        return
    start = struct.pack("<4I", first_block, *check_nonce(nonce))
    cipher = Cipher(algorithms.ChaCha20(key.astype("<u4").tobytes(), start), mode=None).encryptor()
    for at in range(0, out.size, len(_ZEROS)):
        part = out[at : at + len(_ZEROS)]
        cipher.update_into(_ZEROS[: part.size], part.data)


def count_blocks(out: npt.NDArray[np.uint8], first_block: int) -> int:
    """How many blocks ``out`` holds; refuses parts of a block, and counters from ``first_block`` on past 32 bits."""
    blocks, rest = divmod(out.size, BLOCK_BYTES)
    if rest:
        raise InputError(f"out: has {out.size} bytes, must be whole blocks of {BLOCK_BYTES}. Round its size up.")
    if first_block < 0 or first_block + blocks > MAX_BLOCKS:
        raise InputError(
            f"first_block={first_block!r}: counters {first_block} to {first_block + blocks} leave 32 bits. "
            "Take another nonce."
        )
    return blocks
