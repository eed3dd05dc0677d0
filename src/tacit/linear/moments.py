"""Sufficient statistics: exact integer sums over all rows, a block at a time."""

import dataclasses

import numpy as np

from tacit.core.errors import InputError
from tacit.linear.rows import RESOLUTION, Examples, Integers

UNIT = RESOLUTION**2
"""One unit of a moment, on the grid."""

# A product is below 2^30, so that float64 adds up to 2^23 of them exactly, in any order.
_EXACT_ROWS = 1 << 20


@dataclasses.dataclass(frozen=True, eq=False)
class Moments:
    """Sums over all rows; private.

    Attributes:
        gram: of z z', of shape (1 + d, 1 + d), in units of 1 / `UNIT`. Its first entry counts the rows.
        cross: of y z, of shape (1 + d,).
    """

    gram: Integers
    cross: Integers


def sum_moments(examples: Examples, *, signs: bool = False) -> Moments:
    """The moments of all rows. With ``signs`` the class codes 0 and 1 stand for targets -1 and 1."""
    gram: Integers | None = None
    cross: Integers | None = None
    for block in examples():
        targets = RESOLUTION * (2 * block.targets - 1) if signs else block.targets
        for start in range(0, len(targets), _EXACT_ROWS):
            design = block.design[start : start + _EXACT_ROWS]
            products = (design.T @ design).astype(np.int64)
            with_target = (design.T @ targets[start : start + _EXACT_ROWS].astype(np.float64)).astype(np.int64)
            gram = products if gram is None else gram + products
            cross = with_target if cross is None else cross + with_target
    if gram is None or cross is None:
        raise InputError("rows=0: there is nothing to learn from. Take a longer table or a smaller test fraction.")
    return Moments(gram, cross)
