"""Runs the Triton kernels: lays operands out for the tensor cores, picks a tile, launches. Needs Triton.

TF32 products read both operands contiguous along the summed dimension, so float32 operands that are not are copied
first where more than one tile reads them. Half precision is read either way, but in convolutions with the channels
contiguous. A padded convolution copies its input into a frame of zeros on the way, so that no kernel ever asks whether
a patch reaches over the edge.
"""

import math

import torch
from torch import Tensor

from tacit.gradients.kernels import tiles
from tacit.gradients.kernels.fitting import INTERPRETED, NARROW
from tacit.gradients.kernels.geometry import Geometry
from tacit.gradients.kernels.tuning import Tile, candidates, choose

_LARGEST = 2**31 - 1  # Offsets within an example are 32-bit.
_ROWS = 16  # whose flags one program looks at
_NARROW = (16, 128)  # rows by columns that one program adds up at a time
_DEEP = (64, 128)  # the same of a matrix that the GPU's cache holds, shared by few programs
_CACHED = 2**23  # bytes of such a matrix
_WIDE = 1024  # columns of long rows, of which it adds up as many at a time as a thread reads numbers
_PROGRAMS, _FEW_PROGRAMS, _FEWEST_PROGRAMS = 1024, 512, 256  # keep a GPU busy; so do fewer that read much at a time
_OUTER = (128, 128)  # examples by columns of which one program adds up outer products at a time
_AT_ONCE = 16  # bytes that a thread reads
_NUMBERS, _DEPTH = 1024, 128  # of a tile that adds up sums: all of it, and its rows at most; four numbers a thread
_WORDS = 32  # of a box, that one program of one warp reads at a time: 8 bytes a thread


def product_norms(left: Tensor, right: Tensor, precision: str) -> Tensor:
    """Squared norms of ``left[i].T @ right[i]`` in float64. The norm is symmetric: the wider operand gives the rows."""
    if left.shape[2] < right.shape[2]:
        left, right = right, left
    examples, tokens, rows = left.shape
    columns = right.shape[2]
    precision = _effective(left, precision)
    left, right = _by_token(left, columns, precision), _by_token(right, rows, precision)

    def launch(tile: Tile) -> Tensor:
        column_tiles = -(-columns // tile.columns)
        count = -(-rows // tile.rows) * column_tiles
        partial = torch.empty(examples, count, dtype=torch.float64, device=left.device)
        tiles.product_norms_kernel[(examples * count,)](
            *(left, right, partial, tokens, rows, columns, count, column_tiles),
            *(left.stride(0), left.stride(1), left.stride(2), right.stride(0), right.stride(1), right.stride(2)),
            EVEN=tokens % tile.tokens == 0,
            PRECISION=precision,
            BM=tile.rows,
            BN=tile.columns,
            BT=tile.tokens,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
        return partial

    table = candidates(rows, columns, tokens, left.element_size(), precision)
    layout = (left.stride(1) == 1, right.stride(1) == 1)
    key = ("product", left.device, left.dtype, precision, tokens, rows, columns, layout)
    return _total(launch(choose(key, table, launch, can_time=not INTERPRETED)))


def convolution(
    x: Tensor,
    grad: Tensor,
    geometry: Geometry,
    precision: str,
    *,
    out_dtype: torch.dtype | None,
    by_offset: bool = False,
    views: int = 1,
) -> Tensor:
    """Per-example weight gradients ``[B, O, C * KH * KW]`` in ``out_dtype``; with None their squared norms."""
    examples, channels = x.shape[0] // views, x.shape[1]
    rows, columns = grad.shape[1], channels * geometry.offsets
    positions, width = grad.shape[2] * grad.shape[3], grad.shape[3]
    precision = _effective(x, precision)
    x = _framed(x, geometry.padding, channels_last=x.element_size() == 2 and channels % 8 == 0)
    channels_last = channels > 1 and x.stride(1) == 1
    grad = _by_position(grad, reread=columns, precision=precision)
    writes = out_dtype is not None

    def launch(tile: Tile) -> Tensor:
        column_tiles = -(-columns // tile.columns)
        count = -(-rows // tile.rows) * column_tiles
        shape = (examples, rows, columns) if writes else (examples, count)
        out = torch.empty(shape, dtype=out_dtype or torch.float64, device=x.device)
        tiles.convolution_kernel[(examples * count,)](
            *(x, grad, out, positions, rows, count, column_tiles, *x.stride(), *grad.stride()),
            *(*geometry.stride, *geometry.dilation),
            C=channels,
            KH=geometry.kernel_size[0],
            KW=geometry.kernel_size[1],
            OW=width,
            VIEWS=views,
            CHANNELS_LAST=channels_last,
            WRITE=writes,
            WRITE_LAST=by_offset,
            EVEN=positions % tile.tokens == 0,
            PRECISION=precision,
            BM=tile.rows,
            BN=tile.columns,
            BT=tile.tokens,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
        return out

    table = candidates(rows, columns, positions, x.element_size(), precision)
    layout = (channels_last, by_offset, grad.stride(2) == 1)
    key = ("convolution", x.device, x.dtype, out_dtype, precision, geometry, x.shape[1:], rows, views, layout)
    out = launch(choose(key, table, launch, can_time=not INTERPRETED))
    return out if writes else _total(out)


def zero_rows_(values: Tensor, keep: Tensor) -> None:
    """``values[i] = 0`` where ``keep[i]`` is false; rows that are kept are not read."""
    examples, size = values.shape[0], values[0].numel()
    tiles.zero_rows_kernel[(-(-examples // _ROWS),)](
        values,
        keep.contiguous().view(torch.uint8),
        examples,
        size,
        values.stride(0),
        ROWS=_ROWS,
        BLOCK=1024,
        num_warps=4,
    )


def weighted_rows(rows: Tensor, weights: Tensor, keep: Tensor | None) -> Tensor:
    """``sum_i weights[i] rows[i]`` over the rows that are kept, in float32: read once, in parts, whose sums are then
    added by programs that are narrow and deep, since little is left to share among them. Of long rows a program takes
    wide pieces: such rows are few, and a program that read a little of each would end before it was worth starting.
    """
    if rows.shape[1] >= _FEW_PROGRAMS * _WIDE:
        return _sums_of_rows(rows, weights, keep, 1, (_AT_ONCE // rows.element_size(), _WIDE), warps=4)[0]
    cached = rows.numel() * rows.element_size() <= _CACHED
    tile, programs = (_DEEP, _FEWEST_PROGRAMS) if cached else (_NARROW, _PROGRAMS)
    blocks = -(-rows.shape[1] // tile[1])
    parts = min(max(programs // blocks, 1), -(-rows.shape[0] // tile[0]))
    return _added_up(_sums_of_rows(rows, weights, keep, parts, tile, warps=4))


def outer_sum(left: Tensor, right: Tensor, keep: Tensor | None) -> Tensor:
    """``sum_i left[i] right[i].T`` over the examples that are kept, in float32, of half precision: read once, in parts,
    whose sums are then added.
    """
    (count, width), size = left.shape, right.shape[1]
    rows, block = _OUTER
    blocks = -(-size // block)
    share = -(-count // min(max(_FEWEST_PROGRAMS // blocks, 1), -(-count // rows)))
    unit = math.gcd(size, right.stride(0), _AT_ONCE // right.element_size())
    sums = torch.empty(-(-count // share), width * size, dtype=torch.float32, device=right.device)
    tiles.outer_sums_kernel[(blocks, sums.shape[0])](
        *(left, right, right if keep is None else keep.contiguous().view(torch.uint8), sums),
        *(count, width, size // unit, left.stride(0), right.stride(0) // unit, share),
        MASKED=keep is not None,
        UNIT=unit,
        WIDTH=NARROW,
        ROWS=rows,
        BLOCK=block,
        num_warps=4,
    )
    return _added_up(sums).view(width, size)


def _added_up(sums: Tensor) -> Tensor:
    """The sum of all rows."""
    if sums.shape[0] == 1:
        return sums[0]
    depth = min(1 << (sums.shape[0] - 1).bit_length(), _DEPTH)
    return _sums_of_rows(sums, None, None, 1, (depth, _NUMBERS // depth), warps=8)[0]


def _sums_of_rows(
    rows: Tensor, weights: Tensor | None, keep: Tensor | None, parts: int, tile: tuple[int, int], *, warps: int
) -> Tensor:
    """One sum for each of about so many stretches of rows; a program adds up a tile, rows by columns, at a time."""
    count, size = rows.shape
    share, unit = -(-count // parts), math.gcd(size, rows.stride(0), _AT_ONCE // rows.element_size())
    out = torch.empty(-(-count // share), size, dtype=torch.float32, device=rows.device)
    tiles.weighted_rows_kernel[(-(-size // tile[1]), out.shape[0])](
        *(rows, rows if weights is None else weights, rows if keep is None else keep.contiguous().view(torch.uint8)),
        *(out, count, size // unit, rows.stride(0) // unit, share),
        WEIGHTED=weights is not None,
        MASKED=keep is not None,
        UNIT=unit,
        ROWS=tile[0],
        BLOCK=tile[1],
        num_warps=warps,
    )
    return out


def fetch_box_(there: Tensor, boxes: Tensor, counts: Tensor) -> None:
    """Copies the box whose turn it is; a box of another number stops the device."""
    tiles.fetch_box_kernel[(counts.numel(),)](
        *(there, boxes, counts, there.numel()),
        BOXES=boxes.shape[0],
        BLOCK=_WORDS,
        num_warps=1,
        num_stages=1,
        debug=True,  # keeps the assertion
        sanitize_overflow=False,
    )


def fits(*operands: Tensor) -> bool:
    """Whether kernels can address these tensors: floats of at most 32 bits, and examples below 2³¹ elements."""
    first = operands[0]
    return first.dtype in (torch.float32, torch.float16, torch.bfloat16) and all(
        tensor.dtype == first.dtype and tensor.numel() > 0 and _span(tensor) <= _LARGEST for tensor in operands
    )


def outer_sum_fits(left: Tensor, right: Tensor) -> bool:
    """Whether `outer_sum` takes them: half precision, few numbers on the left, each example's side by side."""
    ordered = left.stride(1) == right.stride(1) == 1
    return fits(right, left) and right.element_size() == 2 and left.shape[1] <= NARROW and ordered


def rows_are_dense(values: Tensor) -> bool:
    """Whether each ``values[i]``, of floats, fills one stretch of memory of its own, its dimensions in any order."""
    if values.numel() == 0 or not values.is_floating_point():
        return False
    expected = 1
    for size, stride in sorted(zip(values.shape[1:], values.stride()[1:], strict=True), key=lambda pair: pair[1]):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return values.shape[0] == 1 or values.stride(0) >= expected


def _span(tensor: Tensor) -> int:
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape[1:], tensor.stride()[1:], strict=True))


def _effective(operand: Tensor, precision: str) -> str:
    """Products of half-precision numbers are exact in float32: the choice concerns float32 operands alone."""
    return precision if operand.dtype == torch.float32 else "tf32"


def _total(partial: Tensor) -> Tensor:
    return partial.reshape(-1) if partial.shape[1] == 1 else partial.sum(1)


def _by_token(operand: Tensor, reread: int, precision: str) -> Tensor:
    """``[B, T, features]`` as the kernel reads it best; ``reread``: the other operand's width."""
    if _stays(operand, operand.stride(1), operand.stride(2), reread, precision):
        return operand
    by_feature = operand.transpose(1, 2).unsqueeze(2)
    return _lay_out(by_feature, (0, 0), channels_last=False).squeeze(2).transpose(1, 2)


def _by_position(grad: Tensor, *, reread: int, precision: str) -> Tensor:
    """``[B, O, OH, OW]`` as ``[B, O, T]``, laid out by the same rule."""
    flat = grad.shape[3] == 1 or grad.shape[2] == 1 or grad.stride(2) == grad.shape[3] * grad.stride(3)
    if flat and _stays(grad, grad.stride(3), grad.stride(1), reread, precision):
        return grad.as_strided(
            (*grad.shape[:2], grad.shape[2] * grad.shape[3]),
            (grad.stride(0), grad.stride(1), grad.stride(3) if grad.shape[3] > 1 else grad.stride(2)),
        )
    return _lay_out(grad, (0, 0), channels_last=False).flatten(2)


def _stays(operand: Tensor, along_tokens: int, along_features: int, reread: int, precision: str) -> bool:
    if along_tokens == 1:
        return True
    # The ordinary units and half precision do not mind; one tile across the other operand reads everything once anyway.
    return along_features == 1 and (operand.element_size() == 2 or precision == "ieee" or reread <= 128)


def _framed(x: Tensor, padding: tuple[int, int], *, channels_last: bool) -> Tensor:
    """x in a frame of zeros, with channels or with width contiguous; x itself where it is so already."""
    ready = x.stride(1) == 1 if channels_last else x.stride(3) == 1
    if ready and padding == (0, 0):
        return x
    return _lay_out(x, padding, channels_last=channels_last)


def _lay_out(x: Tensor, padding: tuple[int, int], *, channels_last: bool) -> Tensor:
    """A copy of ``[B, C, H, W]`` with a zero frame of ``padding``, in the memory format asked for."""
    examples, channels, height, width = x.shape
    rows, columns = height + 2 * padding[0], width + 2 * padding[1]
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    out = torch.empty(examples, channels, rows, columns, dtype=x.dtype, device=x.device, memory_format=memory_format)
    block_c = min(64, 1 << (channels - 1).bit_length())
    block_p = 4096 // block_c
    blocks_c, blocks_p = -(-channels // block_c), -(-rows * columns // block_p)
    tiles.lay_out_kernel[(examples * blocks_c * blocks_p,)](
        *(x, out, channels, height, width, rows * columns, columns, *padding, blocks_c, blocks_p),
        *(*x.stride(), out.stride(0), 1 if channels_last else rows * columns, channels if channels_last else 1),
        BC=block_c,
        BP=block_p,
        num_warps=4,
    )
    return out
