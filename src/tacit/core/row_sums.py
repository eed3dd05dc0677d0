"""Sums of weighted rows that nobody has taken yet: whoever reads the sum next may take it on the way."""

import dataclasses

import torch
from torch import Tensor


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

    @property
    def form(self) -> "RowForm":
        """What sums must have in common that are taken together."""
        return self.rows.shape[0], self.rows.dtype


RowForm = tuple[int, torch.dtype]
"""The number of rows, and their type."""
