"""Rows as integers: scaled by public bounds, cut to them, and put on a grid, so that every sum over them is exact.

A floating-point sum depends on its order by a little, and that little is not covered by any sensitivity. Here one row
is the integers :math:`\\lfloor 2^{14} z \\rfloor` (towards zero, so that no norm grows), its products have 30 bits, and
sums of them are exact whatever the chunks.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.core.validation import check_positive
from tacit.datasets.tables import CategoryColumn, Table

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

RESOLUTION = 1 << 14
"""One unit of a scaled feature or target, on the grid."""

_BELOW_ONE = 1 - 2.0**-40  # more than what the scaling of a row to its norm can lose to rounding


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Some rows on the grid.

    Attributes:
        design: whole numbers as float64 of shape (rows, 1 + d); the first column is the intercept, `RESOLUTION`.
        targets: on the grid, of shape (rows,), for a regression; class codes for a classification.
    """

    design: Floats
    targets: Integers


Examples = Callable[[], Iterator[Block]]
"""All rows, block by block, each time from the beginning."""


@dataclasses.dataclass(frozen=True, eq=False)
class PublicScale:
    """How a row of features becomes z, by public numbers alone: cut to the bounds, centred, divided.

    Attributes:
        lower, upper: the bounds of each feature.
        centre, unit: z = (x - centre) / unit.
        l1, l2, largest: bounds on the norms of z, without the intercept, and on its entries.
        row_norm: rows of a larger L2 norm are scaled down to it; None where the bounds see to the norm.
    """

    lower: Floats
    upper: Floats
    centre: Floats
    unit: Floats
    l1: float
    l2: float
    largest: float = 1.0
    row_norm: float | None = None

    @classmethod
    def box(cls, lower: Floats, upper: Floats, row_norm: float | None = None) -> "PublicScale":
        """Every feature from its bounds to [-1, 1]: the norms are d and the root of d.

        With ``row_norm`` = R they are at most R times the root of d, and R. For rows whose norm is much below the
        root of d in any case that means less noise.
        """
        lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
        centre, unit = _centre_and_unit("bounds", lower, upper)
        width = len(lower)
        l1, l2 = float(width), math.sqrt(width)
        if row_norm is not None:
            l2 = min(l2, check_positive("row_norm", row_norm))
            l1 = min(l1, math.sqrt(width) * l2)
        return cls(lower, upper, centre, unit, l1, l2, row_norm=row_norm)

    @classmethod
    def of_table(cls, table: Table, features: Sequence[str]) -> "PublicScale":
        """For the inputs of a table's chunks, which lie in [0, 1].

        Numbers and booleans go to [-1, 1]. The K inputs of a category, of which one is 1, are centred at 1/K: their z
        has L1 norm 4 (1 - 1/K) and squared L2 norm 4 (1 - 1/K), far below the K of a box.
        """
        centres: list[float] = []
        l1 = squared = 0.0
        largest = 1.0
        for name in features:
            column = table.schema.columns[name]
            if isinstance(column, CategoryColumn):
                size = len(column.categories)
                centres += [1 / size] * size
                l1, squared = l1 + 4 * (1 - 1 / size), squared + 4 * (1 - 1 / size)
                largest = 2.0
            else:
                centres.append(0.5)
                l1, squared = l1 + 1, squared + 1
        width = len(centres)
        bounds = np.zeros(width), np.ones(width)
        return cls(*bounds, np.array(centres), np.full(width, 0.5), l1, math.sqrt(squared), largest)

    @property
    def inputs(self) -> int:
        """d, the number of features."""
        return len(self.centre)

    def scaled(self, inputs: Floats) -> Floats:
        """z of shape (rows, 1 + d) with a first column of ones, not yet on the grid.

        It is cut once more after scaling: where bounds are close for their size the centre is rounded, by as much as
        half of the range.
        """
        z = (np.clip(inputs, self.lower, self.upper) - self.centre) / self.unit
        z = np.clip(z, -self.largest, self.largest)
        if self.row_norm is not None:
            norms = row_norms(z)[:, None]
            z *= np.minimum(1.0, _BELOW_ONE * self.row_norm / np.maximum(norms, self.row_norm / 2))
        return np.concatenate([np.ones((len(z), 1)), z], axis=1)

    def on_grid(self, inputs: Floats) -> Floats:
        """A block's design. Inputs that are not finite are refused: cutting them to bounds would hide an error."""
        if not np.isfinite(inputs).all():
            row, column = np.argwhere(~np.isfinite(inputs))[0]
            raise InputError(
                f"X: row {row + 1}, column {column + 1}: {inputs[row, column]} is not a finite number. "
                "Fill or drop missing values first."
            )
        grid: Floats = np.trunc(RESOLUTION * self.scaled(inputs))
        return grid


def row_norms(values: Floats) -> Floats:
    """The L2 norm of each row, added up column by column.

    numpy's own sums take an order that depends on how many rows there are and how they lie in memory; a row's norm must
    be a function of that row.
    """
    squared = np.zeros(len(values))
    for column in values.T:
        squared += column * column
    return np.sqrt(squared)


def bounds_of(
    bounds: object, width: int, names: Sequence[str] | None = None, argument: str = "bounds"
) -> tuple[Floats, Floats]:
    """Lower and upper bounds of ``width`` columns.

    ``bounds`` is a pair of numbers for all columns, a pair of lists, or a mapping from column names to pairs.
    """
    pairs: Any = bounds
    if isinstance(bounds, Mapping):
        missing = [name for name in names or [] if name not in bounds]
        if names is None or missing:
            lacking = f"has no bounds for {missing[0]!r}" if missing else "names columns, but X has no column names"
            raise InputError(f"{argument}={dict(bounds)!r}: {lacking}. State a pair (lower, upper) for each column.")
        pairs = tuple(zip(*(bounds[name] for name in names), strict=True))
    try:
        lower, upper = (np.broadcast_to(np.asarray(end, dtype=np.float64), (width,)).copy() for end in pairs)
    except (TypeError, ValueError):
        raise InputError(
            f"{argument}={bounds!r}: must be a pair (lower, upper) of numbers, or of lists with {width} entries."
        ) from None
    if not (np.isfinite(lower).all() and np.isfinite(upper).all() and (lower < upper).all()):
        raise InputError(f"{argument}={bounds!r}: each lower bound must be finite and below its upper one.")
    _centre_and_unit(argument, lower, upper)
    return lower, upper


def targets_on_grid(targets: Floats, bounds: tuple[float, float]) -> Integers:
    """Numbers, cut to their bounds and scaled to [-1, 1], on the grid."""
    if not np.isfinite(targets).all():
        row = int(np.argmax(~np.isfinite(targets)))
        raise InputError(f"y: row {row + 1}: {targets[row]} is not a finite number. Fill or drop missing values first.")
    lower, upper = (np.array([end], dtype=np.float64) for end in bounds)
    centre, unit = _centre_and_unit("target_bounds", lower, upper)
    return unit_targets_on_grid((np.clip(targets, lower, upper) - centre) / unit)


def unit_targets_on_grid(targets: Floats) -> Integers:
    """Targets that were scaled to [-1, 1], on the grid; what rounding left outside is cut."""
    if not np.isfinite(targets).all():
        raise InputError("target: a value is not a finite number. Fill or drop missing values first.")
    return np.trunc(RESOLUTION * np.clip(targets, -1.0, 1.0)).astype(np.int64)


def _centre_and_unit(argument: str, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Middle and half width; refused where float64 does not hold them."""
    with np.errstate(over="ignore"):
        centre, unit = (lower + upper) / 2, (upper - lower) / 2
    bad = ~(np.isfinite(centre) & np.isfinite(unit) & (unit > 0))
    if bad.any():
        first = int(np.argmax(bad))
        raise InputError(
            f"{argument}=({float(lower[first])!r}, {float(upper[first])!r}): the middle or the width is too large or "
            "too small for a number. State narrower or wider bounds."
        )
    return centre, unit
