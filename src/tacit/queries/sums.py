"""Sums of bounded numbers."""

import dataclasses
from typing import ClassVar

import numpy as np

from tacit.datasets.tables.table import Table
from tacit.queries.answer import Reading
from tacit.queries.intervals import radius
from tacit.queries.noise import Distance
from tacit.queries.query import Noisy, NoisySums, Setting, Tally
from tacit.queries.rows import find_bounds, power_of_two_step, read_numbers
from tacit.queries.steps import UNIT_BITS, units_a_step


class Sum(NoisySums):
    r"""The sum of a column with bounds L and U.

    Each number is rounded to a public grid, whole multiples of a power of two with at most 2^30 of them from 0 to the
    bounds, and the integers are added: exactly, so that neither the sum nor its noise has low bits that could tell. One
    row moves the sum by :math:`\max(|L|, |U|)` where it is added or removed, and by :math:`U - L` where it is
    replaced; with a condition, which it may pass or not, a replaced row moves it by :math:`\max(U, 0) - \min(L, 0)`.
    The sum is released in coarser steps (`tacit.queries.steps`); a move by m units is one by at most
    :math:`\lceil m/s \rceil` steps of s units.
    """

    kind: ClassVar[str] = "sum"

    def distance(self, setting: Setting) -> Distance:
        grid = Grid.of(*find_bounds(setting.schema, self.column))
        if not setting.terms.replaces:
            moved = max(abs(grid.lower), abs(grid.upper))
        else:
            moved = grid.upper - grid.lower if self.where is None else max(grid.upper, 0) - min(grid.lower, 0)
        return Distance.of_one_integer(moved).rounded(self.units_a_step(setting), sums=1)

    def units_a_step(self, setting: Setting) -> int:
        return units_a_step(setting.terms.records)

    def tally(self, table: Table) -> Tally:
        grid = Grid.of(*find_bounds(table.schema, self.column))
        total = rows = 0
        for numbers in read_numbers(table, self.column, self.where):
            total += int(grid.units(numbers).sum())
            rows += len(numbers)
        return Tally([total], rows)

    def interpret(self, noisy: Noisy) -> Reading:
        unit = Grid.of(*find_bounds(noisy.setting.schema, self.column)).unit
        step = unit * self.units_a_step(noisy.setting)
        reach = radius(noisy.noise.mechanism, noisy.setting.confidence) + 0.5  # what rounding may have moved
        low, value, high = ((noisy.sums[0] + moved) * step for moved in (-reach, 0, reach))
        return Reading(value, [low, high], noisy.noise.name, noisy.noise.scale * step, "the sum")


@dataclasses.dataclass(frozen=True)
class Grid:
    """Whole multiples of a unit between two bounds.

    Attributes:
        unit: a power of two.
        lower, upper: the bounds in units.
    """

    unit: float
    lower: int
    upper: int

    @classmethod
    def of(cls, lower: float, upper: float) -> "Grid":
        """A grid fine enough that rounding is nothing beside noise."""
        unit = power_of_two_step(max(abs(lower), abs(upper)), UNIT_BITS)
        low, high = (int(np.floor(bound / unit + 0.5)) for bound in (lower, upper))
        return cls(unit, low, high)

    def units(self, numbers: np.ndarray) -> np.ndarray:
        """Each number's nearest point, in units; within the bounds whatever the arithmetic did."""
        nearest = np.floor(numbers / self.unit + 0.5).astype(np.int64)
        return np.asarray(np.clip(nearest, self.lower, self.upper))
