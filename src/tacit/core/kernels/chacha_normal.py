"""ChaCha20 or Philox, Box-Muller and the addition in one kernel: every value is read once and written once.

Values that are weighted sums of a few rows need not be there yet: the kernel takes the sum, writes it down tile by tile
and adds the noise. The one waits for memory and the other for arithmetic, so that both take little longer than one of
them.

The plain twin is `tacit.core.device_noise`, which states the law of the noise; the layout of words and normals is fixed
there and here alike. A program computes `TILE` blocks, one a lane, and adds to ``10 * TILE`` consecutive values: normal
k of lane j goes to value ``k * TILE + j``, so that neighbouring lanes touch neighbouring values.

Nothing of a launch depends on the key, which is read on the device: a captured CUDA graph runs with whatever key its
tensor then holds.
"""

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from tacit.core.kernels.row_sums import take_sums
from tacit.core.kernels.tiles import PAIRS, TILE, TILE_BLOCKS, VALUES, left_in_tile, store, tiles_of

if TYPE_CHECKING:
    import torch

    from tacit.core.chacha import Nonce
    from tacit.core.row_sums import RowForm

COLUMNS = 11  # of the table

_COLUMNS = tl.constexpr(COLUMNS)
_TYPES = {"float32": tl.float32, "bfloat16": tl.bfloat16, "float16": tl.float16}
_WARPS = 4  # one block a thread: its sixteen words and the key fit into registers


def add_normal_(values: "torch.Tensor", scale: float, key: "torch.Tensor", nonce: "Nonce", *, fast: bool) -> None:
    """Launches the kernel on contiguous ``values`` of at most 32 bits each; arguments are checked by the caller."""
    _add_normal_kernel[(tiles_of(values.numel()),)](
        values, values.numel(), scale, key, *map(signed, nonce), fast=fast, num_warps=_WARPS
    )


def add_normals_(
    table: "torch.Tensor",
    owners: "torch.Tensor",
    scale: float,
    divisor: float,
    key: "torch.Tensor",
    form: "RowForm | None",
    *,
    fast: bool,
) -> None:
    """Launches one kernel on many float32 tensors, which also divides and descends; see `tacit.core.noise_table`.

    Args:
        table: int64, `COLUMNS` numbers a tensor: address, number of values, first tile, three words of its nonce,
            address of a parameter or 0, bits of its rate in float32; then of a `RowSum` the addresses of rows, weights
            and flags, or 0 where the tensor holds its values already.
        owners: int32, for each tile the place of its tensor in the table.
        form: of the sums that are taken on the way, where there are any.
    """
    _add_normals_kernel[(owners.numel(),)](
        *(table, owners, scale, divisor, key),
        fast=fast,
        row_count=0 if form is None else form.count,
        row_type=tl.float32 if form is None else _TYPES[form.dtype],
        unit=1 if form is None else form.unit,
        num_warps=_WARPS,
    )


def keystream_(
    words: "torch.Tensor", key: "torch.Tensor", nonce: "Nonce", first_block: int = 0, *, fast: bool = False
) -> None:
    """Writes blocks from ``first_block`` on into ``words``, int32 of shape (16, blocks): for the published vectors."""
    blocks = words.shape[1]
    grid = (triton.cdiv(blocks, TILE_BLOCKS),)
    start = (signed(first_block), *map(signed, nonce))
    _keystream_kernel[grid](words, blocks, key, *start, fast=fast, num_warps=_WARPS)


def signed(word: int) -> int:
    """The int32 with the same bits, so that every word has one type and compiles one kernel."""
    return word - 2**32 if word >= 2**31 else word


_WORDS = ["nonce0", "nonce1", "nonce2"]


@triton.jit(do_not_specialize=["count", *_WORDS])
def _add_normal_kernel(
    values: tl.tensor,
    count: tl.tensor,
    scale: tl.tensor,
    key: tl.tensor,
    nonce0: tl.tensor,
    nonce1: tl.tensor,
    nonce2: tl.tensor,
    fast: tl.constexpr,
) -> None:
    nonce, descent = (nonce0, nonce1, nonce2), (values, 0, 0.0)
    _add_tile(values, count, tl.program_id(0), scale, 1.0, key, nonce, descent, count, fast)


@triton.jit(do_not_specialize=["scale", "divisor"])
def _add_normals_kernel(
    table: tl.tensor,
    owners: tl.tensor,
    scale: tl.tensor,
    divisor: tl.tensor,
    key: tl.tensor,
    fast: tl.constexpr,
    row_count: tl.constexpr,
    row_type: tl.constexpr,
    unit: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    row = table + _COLUMNS * tl.load(owners + program)
    values, count = _pointer(row, tl.float32), tl.load(row + 1)
    tile = program - _word(row + 2)
    nonce = (_word(row + 3), _word(row + 4), _word(row + 5))
    descending = tl.where(tl.load(row + 6) != 0, count, 0)
    descent = (_pointer(row + 6, tl.float32), descending, _word(row + 7).to(tl.float32, bitcast=True))
    is_open = tl.load(row + 8) != 0
    if row_count > 0:
        if is_open:
            sums = (_pointer(row + 8, row_type), _pointer(row + 9, tl.float32), _pointer(row + 10, tl.int8))
            take_sums(values, count, tile, sums, row_count, unit)
            tl.debug_barrier()  # other threads of the program read what one has written
        held = count
    else:
        held = tl.where(is_open, 0, count)  # what lies there may be anything
    _add_tile(values, count, tile, scale, divisor, key, nonce, descent, held, fast)


@triton.jit
def _pointer(place: tl.tensor, kind: tl.constexpr) -> tl.tensor:
    return tl.load(place).to(tl.pointer_type(kind))


@triton.jit
def _word(place: tl.tensor) -> tl.tensor:
    return tl.load(place).to(tl.int32)


@triton.jit
def _add_tile(
    values: tl.tensor,
    count: tl.tensor,
    tile: tl.tensor,
    scale: tl.tensor,
    divisor: tl.tensor,
    key: tl.tensor,
    nonce: tl.tuple,
    descent: tl.tuple,
    held: tl.tensor,
    fast: tl.constexpr,
) -> None:
    """``v = (v + scale * noise) / divisor`` for one tile, and ``p -= rate * v``, in float32.

    Of the values ``held`` are read, which is all of them or none, and zeros stand for the others.

    Args:
        descent: parameter, for how many of its values, which is all of them or none, and rate.
    """
    parameter, descending, rate = descent
    lane = tl.arange(0, TILE)
    start = tile.to(tl.int64) * VALUES
    inside, moved = values + start, parameter + start
    left, moving = left_in_tile(count, start), left_in_tile(descending, start)
    # Asked for before the cipher, they are there when it is done.
    known, weights = _tile(inside, lane, left_in_tile(held, start)), _tile(moved, lane, moving)
    words = _block(key, tile * TILE + lane, nonce, fast)
    for pair in tl.static_range(PAIRS):
        normals = _normals(words[3 * pair], words[3 * pair + 1], words[3 * pair + 2])
        for half in tl.static_range(2):
            at = lane + (2 * pair + half) * TILE
            mean = (known[2 * pair + half].to(tl.float32) + scale * normals[half]) / divisor
            store(inside, at, left, mean)
            store(moved, at, moving, weights[2 * pair + half].to(tl.float32) - rate * mean)


@triton.jit
def _tile(values: tl.tensor, lane: tl.tensor, count: tl.tensor) -> tl.tuple:
    """The ten values of every lane."""
    return (
        _load(values, lane, 0, count), _load(values, lane, 1, count), _load(values, lane, 2, count),
        _load(values, lane, 3, count), _load(values, lane, 4, count), _load(values, lane, 5, count),
        _load(values, lane, 6, count), _load(values, lane, 7, count), _load(values, lane, 8, count),
        _load(values, lane, 9, count),
    )  # fmt: skip


@triton.jit
def _load(values: tl.tensor, lane: tl.tensor, number: tl.constexpr, count: tl.tensor) -> tl.tensor:
    at = lane + number * TILE
    return tl.load(values + at, mask=at < count, other=0.0)


@triton.jit(do_not_specialize=["blocks", "first_block", *_WORDS])
def _keystream_kernel(
    out: tl.tensor,
    blocks: tl.tensor,
    key: tl.tensor,
    first_block: tl.tensor,
    nonce0: tl.tensor,
    nonce1: tl.tensor,
    nonce2: tl.tensor,
    fast: tl.constexpr,
) -> None:
    column = tl.program_id(0) * TILE + tl.arange(0, TILE)
    words = _block(key, first_block + column, (nonce0, nonce1, nonce2), fast)
    for row in tl.static_range(16):
        tl.store(out + row * blocks + column, words[row].to(tl.int32, bitcast=True), mask=column < blocks)


@triton.jit
def _block(key: tl.tensor, counter: tl.tensor, nonce: tl.tuple, fast: tl.constexpr) -> tl.tuple:
    """Sixteen words for every counter."""
    return _philox(key, counter, nonce) if fast else _chacha(key, counter, nonce)


@triton.jit
def _philox(key: tl.tensor, counter: tl.tensor, nonce: tl.tuple) -> tl.tuple:
    """Four words under each of four keys, as `tacit.core.philox` lays them out."""
    zero = tl.zeros([TILE], tl.uint32)
    block = _unsigned(counter)
    n0, n1, n2 = zero + _unsigned(nonce[0]), zero + _unsigned(nonce[1]), zero + _unsigned(nonce[2])
    a0, a1, a2, a3 = tl.philox_impl(block, n0, n1, n2, _key_word(key, 0), _key_word(key, 1))
    b0, b1, b2, b3 = tl.philox_impl(block, n0, n1, n2, _key_word(key, 2), _key_word(key, 3))
    c0, c1, c2, c3 = tl.philox_impl(block, n0, n1, n2, _key_word(key, 4), _key_word(key, 5))
    d0, d1, d2, d3 = tl.philox_impl(block, n0, n1, n2, _key_word(key, 6), _key_word(key, 7))
    return a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3


@triton.jit
def _chacha(key: tl.tensor, counter: tl.tensor, nonce: tl.tuple) -> tl.tuple:
    """The block function of RFC 8439, section 2.3."""
    zero = tl.zeros([TILE], tl.uint32)
    k0, k1, k2, k3 = _key_word(key, 0), _key_word(key, 1), _key_word(key, 2), _key_word(key, 3)
    k4, k5, k6, k7 = _key_word(key, 4), _key_word(key, 5), _key_word(key, 6), _key_word(key, 7)
    n0, n1, n2 = _unsigned(nonce[0]), _unsigned(nonce[1]), _unsigned(nonce[2])
    x0, x1, x2, x3 = zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574
    x4, x5, x6, x7 = zero + k0, zero + k1, zero + k2, zero + k3
    x8, x9, x10, x11 = zero + k4, zero + k5, zero + k6, zero + k7
    x12, x13, x14, x15 = _unsigned(counter), zero + n0, zero + n1, zero + n2
    for _ in range(10):
        x0, x4, x8, x12 = _quarter_round(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter_round(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter_round(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter_round(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter_round(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter_round(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter_round(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter_round(x3, x4, x9, x14)
    return (
        x0 + 0x61707865, x1 + 0x3320646E, x2 + 0x79622D32, x3 + 0x6B206574,
        x4 + k0, x5 + k1, x6 + k2, x7 + k3, x8 + k4, x9 + k5, x10 + k6, x11 + k7,
        x12 + _unsigned(counter), x13 + n0, x14 + n1, x15 + n2,
    )  # fmt: skip


@triton.jit
def _key_word(key: tl.tensor, index: tl.tensor) -> tl.tensor:
    return _unsigned(tl.load(key + index))


@triton.jit
def _unsigned(word: tl.tensor) -> tl.tensor:
    return word.to(tl.uint32, bitcast=True)


@triton.jit
def _quarter_round(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor) -> tl.tuple:
    a += b
    d = _rotate_left(d ^ a, 16)
    c += d
    b = _rotate_left(b ^ c, 12)
    a += b
    d = _rotate_left(d ^ a, 8)
    c += d
    b = _rotate_left(b ^ c, 7)
    return a, b, c, d


@triton.jit
def _rotate_left(word: tl.tensor, bits: tl.constexpr) -> tl.tensor:
    return (word << bits) | (word >> (32 - bits))


@triton.jit
def _normals(high: tl.tensor, low: tl.tensor, angle: tl.tensor) -> tl.tuple:
    """Box-Muller: the radius from 64 bits, the angle from 32, of which two are the signs."""
    radius = tl.sqrt(-2.0 * _log_uniform(high, low))
    part = angle & 0x3FFFFFFF
    first = radius * _sin_quarter_turns(part)
    second = radius * _sin_quarter_turns(part ^ 0x3FFFFFFF)
    return tl.where(angle >> 31 != 0, -first, first), tl.where((angle >> 30) & 1 != 0, -second, second)


@triton.jit
def _log_uniform(high: tl.tensor, low: tl.tensor) -> tl.tensor:
    """log((m + 1/2) / 2^64) of the 64-bit number m, to float32's relative precision near 0 and near 1 alike.

    The upper half of the numbers is mirrored, so that 1 - u is as exact as u. Then the usual reduction: a power of two
    and a mantissa 1 + f between sqrt(1/2) and sqrt(2), whose logarithm is Cephes' polynomial.
    """
    mirrored = high >> 31 != 0
    flip = tl.where(mirrored, 0xFFFFFFFF, 0).to(tl.uint32)
    near = (high ^ flip).to(tl.float32) * 2.0**-32 + ((low ^ flip).to(tl.float32) + 0.5) * 2.0**-64
    uniform = tl.where(mirrored, 1.0 - near, near)
    bits = uniform.to(tl.int32, bitcast=True)
    power = (bits - 0x3F3504F3) >> 23  # 0x3F3504F3 is sqrt(1/2)
    f = (bits - (power << 23)).to(tl.float32, bitcast=True) - 1.0
    f = tl.where(mirrored & (power == 0), -near, f)
    series = 7.0376836292e-2 * f - 1.1514610310e-1
    series = series * f + 1.1676998740e-1
    series = series * f - 1.2420140846e-1
    series = series * f + 1.4249322787e-1
    series = series * f - 1.6668057665e-1
    series = series * f + 2.0000714765e-1
    series = series * f - 2.4999993993e-1
    series = series * f + 3.3333331174e-1
    square = f * f
    log_mantissa = f + (series * f - 0.5) * square
    return power.to(tl.float32) * 0.6931471805599453 + log_mantissa


@triton.jit
def _sin_quarter_turns(part: tl.tensor) -> tl.tensor:
    """sin(pi/2 t) for t = (part + 1/2) / 2^30: the odd polynomial of degree 9 of least relative error on (0, 1)."""
    t = (part.to(tl.float32) + 0.5) * 2.0**-30
    square = t * t
    series = 0.000151485130733 * square - 0.0046737666124
    series = series * square + 0.0796896789478
    series = series * square - 0.6459637106
    series = series * square + 1.57079631845
    return series * t
