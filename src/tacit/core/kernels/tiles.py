"""Tiles of values: what one program of the noise's kernel works on, whatever it does with them.

A block of a generator gives ten normals, in five pairs. A tile is 128 blocks, one a lane.
"""

import triton
import triton.language as tl

TILE_BLOCKS = 128
_BLOCK_PAIRS = 5
_TILE_VALUES = 2 * _BLOCK_PAIRS * TILE_BLOCKS

TILE = tl.constexpr(TILE_BLOCKS)
PAIRS = tl.constexpr(_BLOCK_PAIRS)
VALUES = tl.constexpr(_TILE_VALUES)


def tiles_of(count: int) -> int:
    """How many tiles that many values take."""
    return -(-count // _TILE_VALUES)


@triton.jit
def store(values: tl.tensor, at: tl.tensor, count: tl.tensor, result: tl.tensor) -> None:
    """Rounds once, to the type of the values."""
    tl.store(values + at, result.to(values.dtype.element_ty), mask=at < count)


@triton.jit
def left_in_tile(count: tl.tensor, start: tl.tensor) -> tl.tensor:
    """How many values are left in a tile, which may be none; offsets in a tile need no 64 bits."""
    return tl.maximum(tl.minimum(count - start, VALUES), 0).to(tl.int32)
