"""A public, fixed assignment of row numbers to splits: it depends on no value of any row, and on no
library's version.

Row i gets the number u(i) in [0, 1), a finalised SplitMix64 counter (Steele, Lea and Flood, OOPSLA 2014)
under a fixed seed. Adding a row at the end changes nothing for the rows before it, so that neighbouring data
sets are split alike.
"""

import numpy as np

_SPLIT_SEED = 0x7461636974  # the bytes of "tacit": public, and fixed for ever
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def public_uniforms(rows: int, *, start: int = 0) -> np.ndarray:
    """u(start), ..., u(start + rows - 1): as good as independent and uniform, the same on every machine."""
    counter = np.arange(start + 1, start + rows + 1, dtype=np.uint64)
    mixed = counter * _INCREMENT + np.uint64(_SPLIT_SEED)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MULTIPLIERS[0]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLIERS[1]
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) / float(1 << 53)


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
