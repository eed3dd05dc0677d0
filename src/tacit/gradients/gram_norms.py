r"""Squared norms of sums of outer products from Gram matrices over tokens, with a bound on what rounding does to them.

:math:`\|\sum_t l_t r_t^T\|^2 = \sum_{ts} (l_t \cdot l_s)(r_t \cdot r_s)`, which needs no gradient written out.
"""

import dataclasses
import platform
from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.gradients.contributions import Outer, at_least_float32
from tacit.gradients.rounding import largest_sum, operand_error, smallest_normal, sum_error

_COPIES_ACROSS = platform.machine() == "aarch64"  # oneDNN turns a matrix round for each product there, and slowly


def measure_several(outers: Sequence[Outer]) -> Tensor:
    """Squared norms of the sum of several outer products, such as a tied embedding's two, with their cross terms."""
    own = [_grams(outer, outer) for outer in outers]
    crossed = [_grams(first, second) for i, first in enumerate(outers) for second in outers[i + 1 :]]
    left_terms = max(0 if outer.one_hot else outer.rows for outer in outers)
    tokens = sum(outer.tokens for outer in outers)
    later = max(operand_error(outer.right.dtype) + sum_error(tokens, outer.right.dtype) for outer in outers)
    return gram_norms(own, crossed, left_terms, outers[0].columns, later=later)


Grams = tuple[Tensor, Tensor]
"""Dot products of all pairs of tokens, left and right, ``[examples, groups, tokens, tokens]``."""


def gram_norms(
    own: Sequence[Grams], crossed: Sequence[Grams], left_terms: int, right_terms: int, *, later: float
) -> Tensor:
    r"""Squared norms from Gram matrices, raised by what rounding may have taken away.

    With S the sum over tokens of :math:`\|l_t\| \|r_t\|`, every dot product is off by at most a known multiple of the
    lengths of its vectors, so the squared norm by a multiple of S² and the weighted sum, taken later, by one of S:
    ``later``, which depends on what that sum is taken from.
    """
    dtype = own[0][1].dtype
    left_error = operand_error(dtype) + sum_error(left_terms, dtype) if left_terms else 0.0
    right_error = operand_error(dtype) + sum_error(right_terms, dtype)
    squared = sum((_total(left * right) for left, right in own), torch.zeros((), dtype=torch.float64))
    for left, right in crossed:
        squared = squared + 2 * _total(left * right)
    left, right = (torch.cat([_diagonal(pair[side]) for pair in own], 1) for side in (0, 1))
    return raised_norms(
        squared, Side(left, left_terms, left_error), Side(right, right_terms, right_error), dtype, later=later
    )


@dataclasses.dataclass(frozen=True)
class Side:
    """One side of outer products: its vectors' squared lengths, by token, and what their dot products are made of.

    Attributes:
        squares: ``[examples, tokens]``, the diagonal of a Gram matrix.
        terms: how many numbers a vector has; none where the dot products are exact.
        error: how far a dot product may be off, by the lengths of its vectors.
    """

    squares: Tensor
    terms: int
    error: float


def raised_norms(squared: Tensor, left: Side, right: Side, dtype: torch.dtype, *, later: float) -> Tensor:
    """Squared norms raised as `gram_norms` says, from what the Gram matrices came to and their diagonals."""
    tiny = smallest_normal(dtype)
    lefts, rights = (((side.squares.double() + side.terms * tiny) / (1 - side.error)).sqrt() for side in (left, right))
    size = (lefts * rights).sum(1)
    lost = tiny * (left.terms * rights.sum(1) ** 2 + right.terms * lefts.sum(1) ** 2 + 1)
    error = (1 + left.error) * (1 + right.error) * (1 + sum_error(2, dtype)) - 1
    norm = (squared.clamp(min=0) + error * size**2 + lost).sqrt()
    # The sum may be taken before it is scaled down, and what float32 cannot hold would spoil it for all.
    return torch.where(size < largest_sum(dtype), norm + later * size, torch.inf).square()


def _total(products: Tensor) -> Tensor:
    return products.sum((1, 2, 3), dtype=torch.float64)


def _diagonal(gram: Tensor) -> Tensor:
    return gram.diagonal(dim1=2, dim2=3).flatten(1)


def _grams(first: Outer, second: Outer) -> Grams:
    return _left_products(first, second), _dot(first.right, second.right)


def _left_products(first: Outer, second: Outer) -> Tensor:
    if first.one_hot and second.one_hot:
        return (first.left[..., :, None] == second.left[..., None, :]).to(at_least_float32(first.right).dtype)
    if first.one_hot:
        return _left_products(second, first).transpose(2, 3)
    if second.one_hot:
        # l'_s is one-hot, so the product picks coordinate ids_s of l_t.
        index = second.left[:, :, None, :].expand(-1, -1, first.left.shape[2], -1)
        return at_least_float32(first.left).gather(3, index)
    return _dot(first.left, second.left)


def _dot(first: Tensor, second: Tensor) -> Tensor:
    across = at_least_float32(second).transpose(2, 3)
    return at_least_float32(first) @ (across.contiguous() if first.is_cpu and _COPIES_ACROSS else across)
