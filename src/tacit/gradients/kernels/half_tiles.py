# mypy: ignore-errors
# ruff: noqa: PLR0913 (a kernel takes every size and stride by itself)
"""Triton kernels for convolutions in half precision, whose channels are contiguous. See `tiles` for the others.

Gradients are formed tile by tile, of every example or as one weighted sum, from boxes of the input that the memory's
own hardware cuts out; `patch_grams_kernel` finds their norms without forming them, where positions are few.
"""

import triton
import triton.language as tl

from tacit.gradients.kernels.tiles import squared_sum


@triton.jit
def cutout_products_kernel(
    x, grad, out, positions, tiles, channel_tiles, tap_groups, pad_h, pad_w, dilation_h, dilation_w, M, C, offsets,
    KW: tl.constexpr, TAPS: tl.constexpr, VIEWS: tl.constexpr, OW: tl.constexpr, WRITE: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """BM rows of one example's gradient, BC channels and TAPS neighbouring offsets of the kernel, added up over the
    example's VIEWS consecutive rows of x: written to [B, M, offsets, C] where WRITE, else squared and summed.

    ``x`` describes [rows, H, W, C] in boxes of whole output rows, shifted by the offset; what lies outside is zero,
    which is the padding. ``grad`` describes [rows * positions, M].
    """
    tl.static_assert(TAPS == 1 or TAPS == 3)
    program = tl.program_id(0)
    example = program // tiles
    tile = program % tiles
    c = (tile % channel_tiles) * BC
    tap = (tile // channel_tiles) % tap_groups * TAPS
    m = tile // channel_tiles // tap_groups * BM
    h = (tap // KW) * dilation_h - pad_h
    w = (tap % KW) * dilation_w - pad_w
    first = tl.zeros((BM, BC), tl.float32)
    second = tl.zeros((BM, BC), tl.float32)
    third = tl.zeros((BM, BC), tl.float32)
    steps = positions // BT
    for step in range(0, VIEWS * steps):
        row = example * VIEWS + step // steps
        above = (step % steps) * (BT // OW) + h
        a = tl.trans(grad.load([row * positions + (step % steps) * BT, m]))
        first = tl.dot(a, x.load([row, above, w, c]).reshape(BT, BC), first)
        if TAPS == 3:
            second = tl.dot(a, x.load([row, above, w + dilation_w, c]).reshape(BT, BC), second)
            third = tl.dot(a, x.load([row, above, w + 2 * dilation_w, c]).reshape(BT, BC), third)
    if WRITE:
        store_tile(out, first, example, m, tap, c, M, C, offsets)
        if TAPS == 3:
            store_tile(out, second, example, m, tap + 1, c, M, C, offsets)
            store_tile(out, third, example, m, tap + 2, c, M, C, offsets)
    else:
        total = squared_sum(first, False)
        if TAPS == 3:
            total += squared_sum(second, False) + squared_sum(third, False)
        tl.store(out + program, total)


@triton.jit
def cutout_sums_kernel(
    x, grad, weights, out, rows, share, positions, tiles, channel_tiles, pad_h, pad_w, dilation_h, dilation_w,
    M, C, offsets,
    KW: tl.constexpr, OW: tl.constexpr, STEPS: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """The same of one offset, times the row's weight, added up over ``share`` rows of x and written to
    [parts, M, offsets, C]. A row is multiplied by its weight after its products are added up, so that no operand is
    rounded; one of weight zero adds nothing, whatever is in it.
    """
    program = tl.program_id(0)
    part = program // tiles
    tile = program % tiles
    c = (tile % channel_tiles) * BC
    tap = (tile // channel_tiles) % offsets
    m = tile // channel_tiles // offsets * BM
    h = (tap // KW) * dilation_h - pad_h
    w = (tap % KW) * dilation_w - pad_w
    total = tl.zeros((BM, BC), tl.float32)
    last = tl.minimum((part + 1) * share, rows)
    if STEPS == 1:
        for row in range(part * share, last):
            a = tl.trans(grad.load([row * positions, m]))
            own = tl.dot(a, x.load([row, h, w, c]).reshape(BT, BC))
            weight = tl.load(weights + row)
            total += tl.where(weight != 0, own * weight, 0.0)
    else:
        for row in tl.range(part * share, last, flatten=True):
            own = tl.zeros((BM, BC), tl.float32)
            for step in range(0, STEPS):
                a = tl.trans(grad.load([row * positions + step * BT, m]))
                own = tl.dot(a, x.load([row, step * (BT // OW) + h, w, c]).reshape(BT, BC), own)
            weight = tl.load(weights + row)
            total += tl.where(weight != 0, own * weight, 0.0)
    store_tile(out, total, part, m, tap, c, M, C, offsets)


@triton.jit
def store_tile(out, tile, group, m, tap, c, M, C, offsets):
    """A tile of one offset to its place in [groups, M, offsets, C]."""
    row = m + tl.arange(0, tile.shape[0])
    column = c + tl.arange(0, tile.shape[1])
    at = out + (group.to(tl.int64) * M + row[:, None]) * offsets * C + tap * C + column[None, :]
    tl.store(at, tile.to(out.dtype.element_ty), mask=(row < M)[:, None] & (column < C)[None, :])


@triton.jit
def patch_grams_kernel(
    x, grad, squared, lefts, rights, one, positions, H, W, xb, xh, xw, gb, gt,
    step_h, step_w, pad_h, pad_w, dilation_h, dilation_w,
    C: tl.constexpr, M: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, OW: tl.constexpr,
    BT: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """For one example, inner products of all pairs of positions: of output gradients, and of patches. Their products
    add up to the squared norm; their diagonals are squared lengths.

    Sums run over at most BK terms in the matrix units, which cut them off, and are then added in float32. ``one`` is
    1, which a compiler cannot know: it would put both sums into one.
    """
    example = tl.program_id(0).to(tl.int64)
    t = tl.arange(0, BT)
    k = tl.arange(0, BK)
    x += example * xb
    grad += example * gb
    left = tl.zeros((BT, BT), tl.float32)
    for start in range(0, M, BK):
        m = start + k
        a = tl.load(grad + t[:, None] * gt + m[None, :], mask=(t < positions)[:, None] & (m < M)[None, :], other=0.0)
        left += tl.dot(a, tl.trans(a)) * one
    top = (t // OW) * step_h - pad_h
    side = (t % OW) * step_w - pad_w
    right = tl.zeros((BT, BT), tl.float32)
    BLOCKS: tl.constexpr = (C + BK - 1) // BK
    for step in range(0, KH * KW * BLOCKS):
        c = (step % BLOCKS) * BK + k
        h = top + (step // BLOCKS // KW) * dilation_h
        w = side + (step // BLOCKS % KW) * dilation_w
        inside = (h >= 0) & (h < H) & (w >= 0) & (w < W) & (t < positions)
        a = tl.load(x + (h * xh + w * xw)[:, None] + c[None, :], mask=inside[:, None] & (c < C)[None, :], other=0.0)
        right += tl.dot(a, tl.trans(a)) * one
    tl.store(squared + example, tl.sum(tl.sum(left.to(tl.float64) * right.to(tl.float64), 1), 0))
    itself = t[:, None] == t[None, :]
    at = example * positions + t
    tl.store(lefts + at, tl.sum(tl.where(itself, left, 0.0), 1), mask=t < positions)
    tl.store(rights + at, tl.sum(tl.where(itself, right, 0.0), 1), mask=t < positions)
