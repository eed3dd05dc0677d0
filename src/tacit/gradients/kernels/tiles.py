# mypy: ignore-errors
# ruff: noqa: PLR0913 (a kernel takes every size and stride by itself)
"""The Triton kernels. Imported only where Triton is installed; `launch` decides layouts, tiles and grids.

One program forms one tile of one example's gradient, rows x columns, and sums over the tokens (or output positions).
Nothing is added atomically: every program writes its own place, so results repeat bit for bit.

Strides of 1 are compile-time constants, which is how Triton finds the contiguous dimension of a tile. Tensor cores want
float32 operands contiguous along the tokens and take half precision either way; the launcher sees to that.
"""

import triton
import triton.language as tl


@triton.jit
def squared_sum(tile, WIDE: tl.constexpr):
    """Sum of squares as float64; WIDE squares in float64 too, where the products themselves are that exact."""
    if WIDE:
        tile = tile.to(tl.float64)
    return tl.sum(tl.sum(tile * tile, 1), 0).to(tl.float64)


@triton.jit
def product_norms_kernel(
    left, right, partial, T, M, N, tiles, column_tiles, lb, lt, lm, rb, rt, rn,
    EVEN: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Tile of left[b].T @ right[b], squared and summed. EVEN: BT divides T, so no token needs a mask."""
    program = tl.program_id(0)
    example = (program // tiles).to(tl.int64)
    tile = program % tiles
    m = (tile // column_tiles) * BM + tl.arange(0, BM)
    n = (tile % column_tiles) * BN + tl.arange(0, BN)
    t = tl.arange(0, BT)
    left_at = left + example * lb + m[:, None] * lm + t[None, :] * lt
    right_at = right + example * rb + t[:, None] * rt + n[None, :] * rn
    has_m = m[:, None] < M
    has_n = n[None, :] < N
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, T, BT):
        if EVEN:
            a = tl.load(left_at, mask=has_m, other=0.0)
            b = tl.load(right_at, mask=has_n, other=0.0)
        else:
            a = tl.load(left_at, mask=has_m & (t[None, :] < T - start), other=0.0)
            b = tl.load(right_at, mask=has_n & (t[:, None] < T - start), other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        left_at += BT * lt
        right_at += BT * rt
    tl.store(partial + program, squared_sum(total, PRECISION == "ieee"))


@triton.jit
def convolution_kernel(
    x, grad, out, T, M, tiles, column_tiles, xb, xc, xh, xw, gb, gm, gt, step_h, step_w, dilation_h, dilation_w,
    C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, OW: tl.constexpr, VIEWS: tl.constexpr,
    CHANNELS_LAST: tl.constexpr, WRITE: tl.constexpr, WRITE_LAST: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Tile of grad[b] @ patches[b].T over a padded x, added up over an example's VIEWS consecutive rows: written where
    WRITE (columns by channel, or by offset where WRITE_LAST), else squared and summed.

    An address is a position's base plus a column's offset; columns are worked out once, positions once a block. Columns
    and positions past the end repeat the first one, which needs no mask: their grad is zero, or they are dropped below.
    """
    N: tl.constexpr = C * KH * KW
    program = tl.program_id(0)
    example = (program // tiles).to(tl.int64)
    tile = program % tiles
    m = (tile // column_tiles) * BM + tl.arange(0, BM)
    n = (tile % column_tiles) * BN + tl.arange(0, BN)
    has_m = m[:, None] < M
    if CHANNELS_LAST:
        channel, offset = n % C, n // C
    else:
        channel, offset = n // (KH * KW), n % (KH * KW)
    column = channel * xc + (offset // KW) * (dilation_h * xh) + (offset % KW) * (dilation_w * xw)
    # With channels last the columns past the end are masked, because choosing would hide that channels are contiguous.
    has_n = n[None, :] < N
    if not CHANNELS_LAST:
        column = tl.where(n < N, column, 0)
    grad_at = grad + m[:, None] * gm
    if VIEWS == 1:
        x += example * xb
        grad_at += example * gb
    total = tl.zeros((BM, BN), tl.float32)
    steps = tl.cdiv(T, BT)
    for step in range(0, VIEWS * steps):
        if VIEWS > 1:
            row = example * VIEWS + step // steps
            x_here, grad_here, t = x + row * xb, grad_at + row * gb, (step % steps) * BT + tl.arange(0, BT)
        else:
            x_here, grad_here, t = x, grad_at, step * BT + tl.arange(0, BT)
        base = (t // OW) * (step_h * xh) + (t % OW) * (step_w * xw)
        if EVEN:
            a = tl.load(grad_here + t[None, :] * gt, mask=has_m, other=0.0)
        else:
            a = tl.load(grad_here + t[None, :] * gt, mask=has_m & (t[None, :] < T), other=0.0)
            base = tl.where(t < T, base, 0)
        if CHANNELS_LAST:
            b = tl.load(x_here + (base[:, None] + column[None, :]), mask=has_n, other=0.0)
        else:
            b = tl.trans(tl.load(x_here + (column[:, None] + base[None, :])))
        total = tl.dot(a, b, total, input_precision=PRECISION)
    if WRITE:
        if WRITE_LAST == CHANNELS_LAST:
            place = n
        elif WRITE_LAST:
            place = offset * C + channel
        else:
            place = channel * (KH * KW) + offset
        at = out + example * (M * N) + m[:, None] * N + place[None, :]
        tl.store(at, total.to(out.dtype.element_ty), mask=has_m & has_n)
    else:
        tl.store(out + program, squared_sum(tl.where(has_n, total, 0.0), PRECISION == "ieee"))


@triton.jit
def lay_out_kernel(
    x, out, C, H, W, P, PW, pad_h, pad_w, c_blocks, p_blocks, xb, xc, xh, xw, ob, oc, op,
    BC: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Copies x [B, C, H, W] to out [B, C, P], P padded positions in rows of PW, each side in its own strides."""
    program = tl.program_id(0)
    p = (program % p_blocks) * BP + tl.arange(0, BP)
    c = (program // p_blocks % c_blocks) * BC + tl.arange(0, BC)
    example = (program // (p_blocks * c_blocks)).to(tl.int64)
    h = p // PW - pad_h
    w = p % PW - pad_w
    inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
    has_c = c[:, None] < C
    value = tl.load(
        x + example * xb + c[:, None] * xc + (h * xh + w * xw)[None, :], mask=has_c & inside[None, :], other=0.0
    )
    tl.store(out + example * ob + c[:, None] * oc + p[None, :] * op, value, mask=has_c & (p[None, :] < P))


@triton.jit
def zero_rows_kernel(values, keep, count, size, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Zeroes those of ``ROWS`` rows that are not kept; where all are, as nearly always, they cost a byte each."""
    first = tl.program_id(0) * ROWS
    rows = first + tl.arange(0, ROWS)
    kept = tl.load(keep + rows, mask=rows < count, other=1).to(tl.int32)
    if tl.min(kept, 0) == 0:
        place = values + first.to(tl.int64) * stride
        for row in range(first, tl.minimum(first + ROWS, count)):
            if tl.load(keep + row) == 0:
                for start in range(0, size, BLOCK):
                    at = start + tl.arange(0, BLOCK)
                    tl.store(place + at, tl.zeros((BLOCK,), values.dtype.element_ty), mask=at < size)
            place += stride


@triton.jit
def weighted_rows_kernel(
    rows, weights, keep, out, count, size, stride, share,
    WEIGHTED: tl.constexpr, MASKED: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds up ``share`` rows, times their weights where there are any, in a block of columns, several rows at a time.
    ``size`` and ``stride`` count UNITs of numbers, which a thread then reads at once.

    Rows that are not kept are read and put aside: who asks first waits twice.
    """
    size *= UNIT
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, count)
    inside = column < size
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        wanted = row < last
        at = rows + row.to(tl.int64)[:, None] * stride * UNIT + column[None, :]
        value = tl.load(at, mask=wanted[:, None] & inside[None, :], other=0.0).to(tl.float32)
        if MASKED:
            kept = tl.load(keep + row, mask=wanted, other=0) != 0
            value = tl.where(kept[:, None], value, 0.0)
        if WEIGHTED:
            value *= tl.load(weights + row, mask=wanted, other=0.0)[:, None]
        total += value
    tl.store(out + tl.program_id(1).to(tl.int64) * size + column, tl.sum(total, 0), mask=inside)


@triton.jit
def outer_sums_kernel(
    left, right, keep, out, count, width, size, left_stride, right_stride, share,
    MASKED: tl.constexpr, UNIT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds up left[i] right[i].T over ``share`` examples in a block of columns, several examples at a time, by the
    matrix units, which take WIDTH rows at once. ``size`` and ``right_stride`` count UNITs of numbers.
    """
    size *= UNIT
    line = tl.arange(0, WIDTH)
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, count)
    there = line[:, None] < width
    inside = column[None, :] < size
    total = tl.zeros((WIDTH, BLOCK), tl.float32)
    for start in range(first, last, ROWS):
        row = (start + tl.arange(0, ROWS)).to(tl.int64)
        wanted = row < last
        at = right + row[:, None] * right_stride * UNIT + column[None, :]
        value = tl.load(at, mask=wanted[:, None] & inside, other=0.0)
        factor = tl.load(left + row[None, :] * left_stride + line[:, None], mask=there & wanted[None, :], other=0.0)
        if MASKED:
            kept = tl.load(keep + row, mask=wanted, other=0) != 0
            value = tl.where(kept[:, None], value, tl.zeros_like(value))
            factor = tl.where(kept[None, :], factor, tl.zeros_like(factor))
        total = tl.dot(factor, value, total)
    place = (tl.program_id(1).to(tl.int64) * width + line[:, None]) * size + column[None, :]
    tl.store(out + place, total, mask=there & inside)


@triton.jit
def fetch_box_kernel(there, boxes, counts, size, BOXES: tl.constexpr, BLOCK: tl.constexpr):
    """Copies the box whose turn it is, of ``size`` words of 64 bits, and asserts that it bears the right number.

    Every program keeps a count of its own, so that none reads one that another has already raised. Boxes are in host
    memory, of which no cache may hold an earlier state: hence the volatile loads. The number is asked for before the
    words and looked at after them, since each answer takes a microsecond.
    """
    program = tl.program_id(0)
    count = tl.load(counts + program)
    box = boxes + (count % BOXES) * size
    number = tl.load(box, mask=program == 0, other=count, volatile=True)
    for start in range(program * BLOCK, size, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(there + at, tl.load(box + at, mask=at < size, volatile=True), mask=at < size)
    tl.device_assert(number == count, "a parcel was fetched out of turn")
    tl.debug_barrier()  # every thread has read the count
    tl.store(counts + program, count + 1)
