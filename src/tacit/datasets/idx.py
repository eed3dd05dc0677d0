"""The idx format of MNIST and its successors, plain or gzipped.

Big-endian: two zero bytes, a type byte (0x08: unsigned bytes, the only one these sets use), the number of
dimensions, each dimension as four bytes, then the values.
"""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from tacit.core.errors import InputError

_UNSIGNED_BYTE = 0x08


def read_idx(path: Path) -> np.ndarray:
    """The array that an idx file holds; a file ending in ``.gz`` is unpacked on the way."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _broken(path, f"it cannot be unpacked ({error})") from error
    if len(content) < 4 or content[:2] != b"\x00\x00" or content[2] != _UNSIGNED_BYTE:
        raise _broken(path, "it does not begin as an idx file of unsigned bytes")
    dimensions = content[3]
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise _broken(path, "it ends within its header")
    shape = tuple(int(size) for size in np.frombuffer(content, dtype=">u4", count=dimensions, offset=4))
    if len(content) != header + math.prod(shape):
        raise _broken(path, f"shape {shape} asks for {header + math.prod(shape)} bytes, it has {len(content)}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _broken(path: Path, reason: str) -> InputError:
    return InputError(f"{path}: not a whole idx file: {reason}. Delete it and fetch it again.")
