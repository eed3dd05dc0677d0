"""A map of many rows, so that what becomes of one of them does not depend on how many others there are."""

from collections.abc import Callable

import torch
from torch import Tensor


def in_blocks(transform: Callable[[Tensor], Tensor], rows: Tensor, size: int) -> Tensor:
    """The map of all rows in blocks of one size, the last one filled up with zeros.

    A map that sees every row by itself may still round in another way where it has few rows: libraries choose their
    algorithm by the size. Then a record more would move what the others become in their last digits, which no
    sensitivity allows for.

    Args:
        transform: from ``[size, ...]`` to as many rows.
        rows: any number of them.
        size: of a block.
    """
    found: Tensor | None = None
    for start in range(0, max(len(rows), 1), size):
        part = rows[start : start + size]
        filling = part.new_zeros(size - len(part), *part.shape[1:])
        block = transform(torch.cat([part, filling]))
        if found is None:
            found = block.new_empty(len(rows), *block.shape[1:])
        found[start : start + len(part)] = block[: len(part)]
    assert found is not None
    return found
