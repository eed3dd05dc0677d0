"""Philox4x32-10 as Random123 publishes it: its known answers, and ten rounds written word by word."""

import dataclasses

_MASK = 0xFFFFFFFF


@dataclasses.dataclass(frozen=True)
class Answer:
    """What one counter gives under one key."""

    counter: tuple[int, int, int, int]
    key: tuple[int, int]
    words: tuple[int, int, int, int]


ANSWERS = (
    Answer((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    Answer((_MASK,) * 4, (_MASK,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    Answer(
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


def oracle_words(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Slow and plain."""
    (a, b, c, d), (first, second) = counter, key
    for _ in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (right >> 32) ^ b ^ first, right & _MASK, (left >> 32) ^ d ^ second, left & _MASK
        first, second = (first + 0x9E3779B9) & _MASK, (second + 0xBB67AE85) & _MASK
    return a, b, c, d
