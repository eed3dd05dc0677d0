"""Sums of weighted rows that nobody has taken yet: whoever reads the sum next may take it on the way."""

import dataclasses
import math
from collections.abc import Sequence

from torch import Tensor

_AT_ONCE = 2  # numbers that a thread reads


@dataclasses.dataclass(frozen=True)
class RowSum:
    r"""The sum :math:`\sum_i w_i r_i` over the rows that are kept, and the place where it is wanted.

    Attributes:
        rows: ``[rows, numbers]``, contiguous, of float32 or half precision.
        weights: ``[rows]`` of float32.
        keep: ``[rows]`` of bool; a row that is not kept adds nothing, NaN and infinity included.
        total: float32, contiguous, as many numbers as a row has. It holds nothing until the sum was taken.
    """

    rows: Tensor
    weights: Tensor
    keep: Tensor
    total: Tensor


@dataclasses.dataclass(frozen=True)
class RowForm:
    """What sums have in common that are taken together.

    Attributes:
        count: the number of rows.
        dtype: their type, by the name that torch has for it.
        unit: divides the length of every row, and where they begin in memory, in numbers: how many may be read at once.
    """

    count: int
    dtype: str
    unit: int

    @classmethod
    def of(cls, sums: Sequence[RowSum]) -> "RowForm":
        """That of these sums, which must have as many rows of one type."""
        [(count, dtype)] = {(each.rows.shape[0], each.rows.dtype) for each in sums}
        lengths = (each.rows.shape[1] for each in sums)
        begins = (each.rows.data_ptr() // each.rows.element_size() for each in sums)
        return cls(count, str(dtype).removeprefix("torch."), math.gcd(_AT_ONCE, *lengths, *begins))
