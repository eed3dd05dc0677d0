"""Weighted sums of a few rows, tile by tile, for the kernel that then adds noise to them."""

import triton
import triton.language as tl

from tacit.core.kernels.tiles import TILE, VALUES, left_in_tile, store

_ROWS_AT_ONCE = tl.constexpr(8)  # asked for before the first is there; more of them take the registers of other tiles


@triton.jit
def take_sums(
    values: tl.tensor,
    count: tl.tensor,
    tile: tl.tensor,
    sums: tl.tuple,
    row_count: tl.constexpr,
    unit: tl.constexpr,
) -> None:
    """Writes the weighted sums of rows into one tile of values.

    Neighbouring lanes read pairs of neighbours, several rows at a time: it takes that many loads under way to keep the
    memory busy. ``count`` is a multiple of ``unit``, which tells the compiler how rows are aligned.
    """
    rows, weights, keep = sums
    pair = tl.arange(0, 2 * TILE)
    start = tile.to(tl.int64) * VALUES
    left = left_in_tile(count, start)
    s0 = tl.zeros([2 * TILE], tl.float32)
    s1, s2, s3, s4 = s0, s0, s0, s0
    for first in range(0, row_count, _ROWS_AT_ONCE):
        for place in tl.static_range(_ROWS_AT_ONCE):
            row = first + place
            here = rows + row.to(tl.int64) * (count // unit) * unit + start
            wanted = tl.where(row < row_count, left // unit, 0) * unit
            weight = tl.load(weights + row, mask=row < row_count, other=0.0)
            kept = tl.load(keep + row, mask=row < row_count, other=0) != 0
            s0 += _weighted(here, pair, 0, wanted, weight, kept, unit)
            s1 += _weighted(here, pair, 1, wanted, weight, kept, unit)
            s2 += _weighted(here, pair, 2, wanted, weight, kept, unit)
            s3 += _weighted(here, pair, 3, wanted, weight, kept, unit)
            s4 += _weighted(here, pair, 4, wanted, weight, kept, unit)
    inside = values + start
    store(inside, pair, left, s0)
    store(inside, pair + 2 * TILE, left, s1)
    store(inside, pair + 4 * TILE, left, s2)
    store(inside, pair + 6 * TILE, left, s3)
    store(inside, pair + 8 * TILE, left, s4)


@triton.jit
def _weighted(
    row: tl.tensor,
    pair: tl.tensor,
    number: tl.constexpr,
    count: tl.tensor,
    weight: tl.tensor,
    kept: tl.tensor,
    unit: tl.constexpr,
) -> tl.tensor:
    at = pair + number * 2 * TILE
    places = tl.multiple_of(row + at, unit * row.dtype.element_ty.primitive_bitwidth // 8)
    value = tl.load(places, mask=at < count, other=0.0).to(tl.float32)
    return tl.where(kept, value, 0.0) * weight
