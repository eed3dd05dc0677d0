"""A public, fixed assignment of row numbers to splits: it depends on no value of any row, and on no
library's version.

Row i gets a number in [0, 1) by its place alone: `public_uniforms` as if at random, by a finalised SplitMix64 counter
(Steele, Lea and Flood, OOPSLA 2014) under a fixed seed, `evenly_spread` so that every stretch of rows is divided alike.
Adding a row at the end changes nothing for the rows before it, so that neighbouring data sets are split alike.
"""

import numpy as np

_SPLIT_SEED = 0x7461636974  # the bytes of "tacit": public, and fixed for ever
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_BLOCK = 32
_UPPER_BITS = 2.0**20
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def public_uniforms(rows: int, *, start: int = 0) -> np.ndarray:
    """u(start), ..., u(start + rows - 1): as good as independent and uniform, the same on every machine."""
    counter = np.arange(start + 1, start + rows + 1, dtype=np.uint64)
    mixed = counter * _INCREMENT + np.uint64(_SPLIT_SEED)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MULTIPLIERS[0]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLIERS[1]
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def evenly_spread(rows: int, *, start: int = 0) -> np.ndarray:
    """For rows from ``start`` on, numbers that fill [0, 1) evenly in every block of 32 rows, at random within it.

    In each block the rows are ranked by `public_uniforms`, and the row of rank r gets (r + v) / 32, where v is made of
    the lower bits of that number, since its upper ones follow from the rank. So the share of rows below a number is
    right in every part of a file, to a row a block. Files are often sorted, and a split taken at random all over them
    is tilted more.
    """
    first, last = start // _BLOCK, -(-(start + rows) // _BLOCK)
    uniforms = public_uniforms((last - first) * _BLOCK, start=first * _BLOCK).reshape(-1, _BLOCK)
    ranks = uniforms.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    spread: np.ndarray = ((ranks + np.modf(uniforms * _UPPER_BITS)[0]) / _BLOCK).ravel()
    return spread[start - first * _BLOCK :][:rows]


def stratified_test_mask(labels: np.ndarray, fraction: float) -> np.ndarray:
    """Of each class the ``fraction`` of rows with the smallest u, rounded to the nearest count.

    Only for public sets with a published split: the assignment depends on the labels.
    """
    order = public_uniforms(len(labels))
    mask = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        ranked = members[np.argsort(order[members], kind="stable")]
        mask[ranked[: round(fraction * len(members))]] = True
    return mask
