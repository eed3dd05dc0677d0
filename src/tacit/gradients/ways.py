r"""The ways to an example's gradient norm, layer by layer.

A way takes one contribution and gives the squared norm of each example's gradient, and the form in which the weighted
sum is taken later:

- *keep*: write the gradients out and keep them for the sum. What is added is then the very thing that was measured;
- *gram*: :math:`\|\sum_t l_t r_t^T\|^2 = \sum_{ts} (l_t \cdot l_s)(r_t \cdot r_s)`, from two Gram matrices over tokens;
  *gram-kernel* is the same in one kernel, for convolutions in half precision with few positions;
- *tile*: the gradient is squared and added up tile by tile, without being written (a kernel, on GPUs);
- *product*: with a single token the norm is a product of two norms;
- *group*: the rows of an embedding's gradient are sums over equal tokens.

All of them but *keep* take the sum by a second computation, so they add to the norm what rounding may do in either
(`tacit.gradients.rounding`): the norm is then an upper bound of what the example really adds.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from tacit.gradients.contributions import Contribution, Convolved, Direct, Outer, at_least_float32
from tacit.gradients.convolving import (
    grouped_weight_gradients,
    patch_gram_by_shifts,
    patch_lengths,
    patches_by_offset,
)
from tacit.gradients.gram_norms import Side, gram_norms, measure_several, raised_norms
from tacit.gradients.kernels import (
    GRAM_BLOCK,
    HALF,
    MOST_POSITIONS,
    convolution_norms,
    convolution_products,
    patch_grams,
    product_norms,
)
from tacit.gradients.rounding import (
    blocked_sum_error,
    largest_sum,
    lost_squares,
    operand_error,
    square_sum_error,
    subnormal_error,
    sum_error,
    unscaled_error,
)


@dataclasses.dataclass(frozen=True)
class Measured:
    """Squared norms ``[examples]`` in float64, never below what ``source`` adds, and what to take the sum from."""

    squared: Tensor
    source: Contribution


@dataclasses.dataclass(frozen=True)
class Cost:
    """A guess, for one example: multiplications, numbers written on the way, and numbers kept until the sum."""

    products: float
    traffic: float
    kept: float = 0.0


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to the norm: how it is measured, a guess of what it costs, and whether it is made for GPUs.

    Where `measure` is the norm of what it keeps, ``write`` is the part before the norm.
    """

    measure: Callable[..., Measured]
    cost: Callable[..., Cost]
    kernel: bool = False
    write: Callable[..., Direct] | None = None


def measure_written(use: Direct) -> Measured:
    """The norm of gradients that are written out, summed in float64: float32 sums of long rows come out small."""
    return Measured(_row_lengths(use.grads.flatten(1)).square(), use)


def _row_lengths(rows: Tensor) -> Tensor:
    """In float64. On a CPU torch copies what it gets into float64, so it gets a few rows at a time, at least one
    for each thread. What is traced takes all of them: compiled code makes no copy.
    """
    traced = isinstance(rows, torch._subclasses.FakeTensor)
    several = max(_AT_ONCE // max(rows.shape[1], 1), torch.get_num_threads())
    pieces = (rows,) if rows.is_cuda or traced or rows.dtype == torch.float64 else torch.split(rows, several)
    lengths = [torch.linalg.vector_norm(piece, dim=1, dtype=torch.float64) for piece in pieces]
    return lengths[0] if len(lengths) == 1 else torch.cat(lengths)


def _measure_gram(use: Outer) -> Measured:
    return Measured(measure_several([use]), use)


def _write_out(use: Outer) -> Direct:
    return Direct(use.write_out())


def _measure_product(use: Outer) -> Measured:
    """One token: each group's norm is a product, and rounding is relative to it."""
    left, right = (
        _length_at_least(side[:, :, 0]) + subnormal_error(side.shape[3], use.right.dtype)
        for side in (use.left, use.right)
    )
    raised = 1 + operand_error(use.right.dtype) + sum_error(4, use.right.dtype)
    return Measured((left * right * raised).square().sum(1), use)


def _length_at_least(vectors: Tensor) -> Tensor:
    """Upper bounds of the lengths of vectors in the last dimension, in float64, that no rounding takes below them.

    On a CPU the squares of float32 vectors are added up in float32, which is far faster than in float64, in pieces
    that are short. Lengths beyond 2^64 come out infinite there.
    """
    if vectors.is_cuda or vectors.dtype != torch.float32:
        exact: Tensor = torch.linalg.vector_norm(vectors, dim=_last(vectors), dtype=torch.float64)
        return exact
    pieces = [_short_length_at_least(piece) for piece in torch.split(vectors, _SHORT, dim=-1)]
    total: Tensor = pieces[0] if len(pieces) == 1 else torch.linalg.vector_norm(torch.stack(pieces), dim=0)
    return total


def _short_length_at_least(vectors: Tensor) -> Tensor:
    size = vectors.shape[-1]
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=_last(vectors)).double()
    return lengths * (1 + square_sum_error(size)) + lost_squares(size)


def _last(values: Tensor) -> int:
    """Counted from the front: torch 2.11 traces the norm along dimension -1 wrongly where there is one number."""
    return values.dim() - 1


def _measure_group(use: Outer) -> Measured:
    """Rows of equal tokens add up in the place of the first of them."""
    ids, rows = use.left[:, 0], at_least_float32(use.right[:, 0])
    first = (ids[:, :, None] == ids[:, None, :]).int().argmax(2)
    grouped = torch.zeros_like(rows).scatter_add(1, first[..., None].expand_as(rows), rows)
    norm = torch.linalg.vector_norm(grouped.flatten(1), dim=1, dtype=torch.float64)
    size = torch.linalg.vector_norm(rows, dim=2, dtype=torch.float64).sum(1)
    return Measured((norm + 2 * sum_error(use.tokens, rows.dtype) * size).square(), use)


def _write_patches(use: Convolved) -> Direct:
    """One product an example over patches with the channels last."""
    rows = patches_by_offset(use.input, use.shape, use.geometry)
    return Direct(use.grad.flatten(2) @ rows, use.shape, _channels_last(use))


def _write_grouped(use: Convolved) -> Direct:
    grads = grouped_weight_gradients(use.input, use.grad, use.shape, use.geometry)
    return Direct(grads.movedim(0, 2).contiguous())


def _measure_shifts(use: Convolved) -> Measured:
    grads = at_least_float32(use.grad).flatten(2)
    left = (grads.transpose(1, 2) @ grads)[:, None]
    right = patch_gram_by_shifts(at_least_float32(use.input), use.shape, use.geometry)[:, None]
    patch = torch.Size(use.shape[1:]).numel()
    return Measured(gram_norms([(left, right)], [], use.shape[0], patch, later=_later(use)), use)


def _measure_by_gram_kernel(use: Convolved) -> Measured:
    """Both Gram matrices in one kernel, which takes half precision: its products are exact."""
    squared, lefts, rights = patch_grams(use.input, use.grad, use.as_image)
    left_error, right_error = _gram_kernel_errors(use)
    left, right = Side(lefts, use.shape[0], left_error), Side(rights, use.shape[1:].numel(), right_error)
    return Measured(raised_norms(squared, left, right, use.input.dtype, later=_later(use)), use)


def _gram_kernel_errors(use: Convolved) -> tuple[float, float]:
    """Of dot products of output gradients, and of patches, whose offsets each begin a block."""
    patch, offsets = use.shape[1:].numel(), use.shape[2:].numel()
    return blocked_sum_error(use.shape[0], GRAM_BLOCK), blocked_sum_error(patch, GRAM_BLOCK, offsets)


def _later(use: Convolved) -> float:
    """What rounding may do to the sum: to its operands, unless they are taken as they are, and to what they add to."""
    scaled = 0.0 if use.is_cut_out else operand_error(use.input.dtype, convolution=True)
    return scaled + sum_error(use.tokens + 4, use.input.dtype, convolution=True)


def _measure_tiles(use: Outer) -> Measured:
    examples, groups = use.right.shape[:2]
    sides = [side.flatten(0, 1) for side in (use.left, use.right)]
    squared = product_norms(*sides).reshape(examples, groups).sum(1)
    lengths = [torch.linalg.vector_norm(side, dim=3, dtype=torch.float64) for side in (use.left, use.right)]
    size = (lengths[0] * lengths[1]).sum((1, 2))
    lost = _lost_in_subnormals(lengths[0], use.rows, lengths[1], use.columns, use.right.dtype).sum((1, 2))
    dtype = use.right.dtype
    error = unscaled_error(dtype) + operand_error(dtype) + 2 * sum_error(use.tokens + _SQUARING, dtype)
    return Measured(_raised(squared, error * size + lost + lost_squares(use.shape.numel())), use)


def _measure_convolution_tiles(use: Convolved) -> Measured:
    squared = convolution_norms(use.input, use.grad, *use.as_image, views=use.fold)
    rows, patches = (
        lengths.reshape(use.examples, -1)
        for lengths in (
            torch.linalg.vector_norm(use.grad.flatten(2), dim=1, dtype=torch.float64),
            patch_lengths(at_least_float32(use.input), use.shape, use.geometry),
        )
    )
    dtype, size = use.input.dtype, (rows * patches).sum(1)
    lost = _lost_in_subnormals(rows, use.shape[0], patches, use.shape[1:].numel(), dtype).sum(1)
    error = unscaled_error(dtype) + sum_error(use.tokens + _SQUARING, dtype) + _later(use)
    off = torch.where(size < largest_sum(dtype), error * size + lost + lost_squares(use.shape.numel()), torch.inf)
    return Measured(_raised(squared, off), use)


def _lost_in_subnormals(
    left: Tensor, left_entries: int, right: Tensor, right_entries: int, dtype: torch.dtype
) -> Tensor:
    """For each token, from the lengths of its two vectors."""
    return subnormal_error(left_entries, dtype) * right + subnormal_error(right_entries, dtype) * left


def _raised(squared: Tensor, off: Tensor) -> Tensor:
    """By what rounding of the tiles and of the sum taken later may do to the norm."""
    return (squared.sqrt() + off).square()


def _write_by_kernel(use: Convolved) -> Direct:
    """Per-example gradients from a kernel that gathers patches as it goes, with the channels last where it likes to."""
    by_offset = use.is_cut_out
    products = convolution_products(use.input, use.grad, *use.as_image, views=use.fold, by_offset=by_offset)
    return Direct(products, use.shape, _channels_last(use) if by_offset else None)


def _channels_last(use: Convolved) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The `Direct.order` of gradients whose columns are offsets of the kernel and then channels."""
    outputs, channels, *kernel = use.shape
    return (outputs, *kernel, channels), (0, len(kernel) + 1, *range(1, len(kernel) + 1))


def _measure_any_convolution(use: Convolved) -> Measured:
    """Groups, and several rows an example: the way of a linear layer over patches."""
    outer = use.as_outer()
    measured = ways_for(outer)[cheapest(outer)].measure(outer)
    return measured if isinstance(measured.source, Direct) else Measured(measured.squared, outer)


def _sizes(use: Outer) -> tuple[int, int, int]:
    return use.tokens, use.rows * (1 if use.one_hot else use.left.shape[1]), use.columns


def _gram_cost(use: Outer) -> Cost:
    tokens, rows, columns = _sizes(use)
    return Cost(tokens * tokens * (rows + columns) + tokens * rows * columns, 4 * tokens * tokens)


def _kept_cost(use: Outer) -> Cost:
    tokens, rows, columns = _sizes(use)
    products = tokens * columns if use.one_hot else tokens * rows * columns
    return Cost(products, 3 * rows * columns, rows * columns)


def _tiles_cost(use: Outer) -> Cost:
    tokens, rows, columns = _sizes(use)
    return Cost(3 * tokens * rows * columns, 2 * tokens)


def _convolution_tiles_cost(use: Convolved) -> Cost:
    tokens, rows, columns = _convolution_sizes(use)
    return Cost(3 * tokens * rows * columns, 3 * tokens)


def _convolution_sizes(use: Convolved) -> tuple[int, int, int]:
    return use.tokens, use.shape[0], torch.Size(use.shape[1:]).numel()


def _patches_cost(use: Convolved) -> Cost:
    tokens, rows, columns = _convolution_sizes(use)
    return Cost(tokens * rows * columns, 2 * tokens * columns + 3 * rows * columns, rows * columns)


def _grouped_cost(use: Convolved) -> Cost:
    tokens, rows, columns = _convolution_sizes(use)
    return Cost(2 * tokens * rows * columns, 3 * rows * columns, rows * columns)


def _shifts_cost(use: Convolved) -> Cost:
    tokens, rows, columns = _convolution_sizes(use)
    pixels = use.input.shape[2:].numel()
    kernel = torch.Size(use.shape[2:]).numel()
    products = tokens**2 * rows + pixels**2 * use.shape[1] + tokens * rows * columns
    return Cost(products, tokens**2 * (4 + kernel) + pixels**2)


def _gram_kernel_cost(use: Convolved) -> Cost:
    tokens, rows, columns = _convolution_sizes(use)
    return Cost(tokens**2 * (rows + columns) + tokens * rows * columns, 2 * tokens)


def _keeping(write: Callable[..., Direct], cost: Callable[..., Cost], *, kernel: bool = False) -> Way:
    return Way(lambda use: measure_written(write(use)), cost, kernel, write)


OUTER_WAYS = {
    "keep": _keeping(_write_out, _kept_cost),
    "gram": Way(_measure_gram, _gram_cost),
    "tile": Way(_measure_tiles, _tiles_cost, kernel=True),
}
ONE_TOKEN_WAYS = {
    "product": Way(_measure_product, lambda use: Cost(use.rows * use.columns, use.rows + use.columns)),
}
ONE_HOT_WAYS = {
    "group": Way(_measure_group, lambda use: Cost(use.tokens**2, 3 * use.tokens * use.columns)),
    "keep": _keeping(_write_out, _kept_cost),
}
CONVOLUTION_WAYS = {
    "keep": _keeping(_write_patches, _patches_cost),
    "keep-grouped": _keeping(_write_grouped, _grouped_cost),
    "gram": Way(_measure_shifts, _shifts_cost),
}
IMAGE_KERNELS = {
    "keep-kernel": _keeping(_write_by_kernel, _grouped_cost, kernel=True),
    "tile": Way(_measure_convolution_tiles, _convolution_tiles_cost, kernel=True),
}
IMAGE_WAYS = CONVOLUTION_WAYS | IMAGE_KERNELS
FEW_POSITIONS_WAYS = IMAGE_WAYS | {"gram-kernel": Way(_measure_by_gram_kernel, _gram_kernel_cost, kernel=True)}
ANY_CONVOLUTION_WAYS = {
    "patches": Way(_measure_any_convolution, _patches_cost),
}


def ways_for(use: Contribution) -> dict[str, Way]:
    """The ways that a contribution has, by name; a form that is written out has one."""
    if isinstance(use, Direct):
        return {"written": Way(measure_written, lambda _: Cost(0, 0))}
    if isinstance(use, Convolved):
        if use.geometry.groups > 1 or use.fold > 1:
            return ANY_CONVOLUTION_WAYS | IMAGE_KERNELS if use.is_image else ANY_CONVOLUTION_WAYS
        if use.is_image and use.input.dtype in HALF and use.tokens <= MOST_POSITIONS:
            return FEW_POSITIONS_WAYS
        return IMAGE_WAYS if use.is_image else CONVOLUTION_WAYS
    if use.one_hot:
        return ONE_HOT_WAYS
    return ONE_TOKEN_WAYS if use.tokens == 1 else OUTER_WAYS


_AT_ONCE = 2**18  # numbers, which two MiB hold in float64
_SHORT = 2**13  # whose length rounding raises by less than one part in 2000
_SQUARING = 64  # units of float32 by which a tile's squares, added up, may take away from its length
_PRECISE = 4e-3  # of a squared norm
_NUMBER = 30  # multiplications in the time that a number takes to memory and back, roughly, on any machine


def guess(use: Contribution, way: Way) -> float:
    """What a way costs for one example, in multiplications."""
    cost = way.cost(use)
    return cost.products + _NUMBER * cost.traffic


def cheapest(use: Contribution) -> str:
    """The way with the least guess, among those for any device."""
    ways = {name: way for name, way in ways_for(use).items() if not way.kernel and is_precise(use, name)}
    return min(ways, key=lambda name: guess(use, ways[name]))


def is_precise(use: Contribution, name: str) -> bool:
    """Whether rounding raises an ordinary norm by little, that of tokens unlike one another: S² is then T times it.

    Only Gram matrices can fail here: what rounding may do to them grows with the square of S. A norm that is raised
    much is still safe, but the gradient would come out too short.
    """
    if name == "gram-kernel" and isinstance(use, Convolved):
        error = sum(_gram_kernel_errors(use))
    elif name != "gram" or isinstance(use, Direct):
        return True
    else:
        rows, columns = (use.rows, use.columns) if isinstance(use, Outer) else (use.shape[0], use.shape[1:].numel())
        given = use.right.dtype if isinstance(use, Outer) else use.input.dtype
        dtype = torch.promote_types(given, torch.float32)  # which operands become first
        error = 2 * operand_error(dtype) + sum_error(rows, dtype) + sum_error(columns, dtype)
    return error * use.tokens < _PRECISE
