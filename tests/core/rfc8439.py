"""ChaCha20 as RFC 8439 prints it: test vectors of sections 2.3.2 and A.1, and the block function word by word."""

import dataclasses
import struct

_MASK = 0xFFFFFFFF


@dataclasses.dataclass(frozen=True)
class Vector:
    """One call of the block function; the block is serialised in hexadecimal."""

    name: str
    key: bytes
    nonce: tuple[int, int, int]
    counter: int
    block: str


_ZEROS = bytes(32)

VECTORS = (
    Vector(
        "2.3.2",
        bytes(range(32)),
        (0x09000000, 0x4A000000, 0),
        1,
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    Vector(
        "A.1 #1",
        _ZEROS,
        (0, 0, 0),
        0,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    Vector(
        "A.1 #2",
        _ZEROS,
        (0, 0, 0),
        1,
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    Vector(
        "A.1 #3",
        bytes(31) + b"\x01",
        (0, 0, 0),
        1,
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    Vector(
        "A.1 #4",
        b"\x00\xff" + bytes(30),
        (0, 0, 0),
        2,
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
    Vector(
        "A.1 #5",
        _ZEROS,
        (0, 0, 0x02000000),
        0,
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
    ),
)


def oracle_block(key: bytes, counter: int, nonce: tuple[int, int, int]) -> tuple[int, ...]:
    """The sixteen words of one block, by Python's whole numbers."""
    initial = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter, *nonce]
    state = list(initial)
    for _ in range(10):
        for column in range(4):
            _quarter_round(state, column, 4 + column, 8 + column, 12 + column)
        for column in range(4):
            _quarter_round(state, column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    return tuple((word + start) & _MASK for word, start in zip(state, initial, strict=True))


def _quarter_round(state: list[int], a: int, b: int, c: int, d: int) -> None:
    for target, addend, mixed, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[target] = (state[target] + state[addend]) & _MASK
        turned = state[mixed] ^ state[target]
        state[mixed] = ((turned << bits) | (turned >> (32 - bits))) & _MASK
