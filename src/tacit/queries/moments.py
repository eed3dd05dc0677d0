r"""Means and variances without a private divisor.

Scaled to :math:`t = (x - L)/(U - L) \in [0, 1]` a row is shared out among a few cells, as a row of a histogram goes to
one: :math:`(1 - t, t)` for a mean, :math:`((1-t)^2, 2t(1-t), t^2)` for a variance. The shares are not negative and
add up to 1, so that **one row moves all sums together by an L1 distance of 1**, and an L2 distance of at most 1, as in
a histogram. Their sums give the number of rows, their mean and their mean square, so that nothing private divides.

This beats a noisy sum over a noisy count, between which epsilon is divided. With Laplace noise of scale
:math:`1/\epsilon` on both shares the mean's variance is
:math:`2(U-L)^2(\bar t^2 + (1 - \bar t)^2)/(\epsilon n)^2`. A sum of :math:`x - (L+U)/2`, with half the sensitivity that
:math:`x - L` has, and a count at :math:`\epsilon/2` each have twice that, wherever the mean lies; a sum of
:math:`x - L` and a count at least four times. With Gaussian noise the centred sum and the shares are one and the same
up to a rotation.

Where the number of rows is public (replace-one, no condition) the first cell is left out, since the others and the
number give it. A replaced row then moves t by at most 1, and :math:`(2t(1-t), t^2)` by at most 4/3 in L1 and
:math:`\sqrt{128/125}` in L2 norm. For with :math:`\delta = t - s` and :math:`p = s + t` the two move by
:math:`2\delta(1 - p)` and :math:`\delta p`. Where the signs agree, that is :math:`\delta(2 - p) \le 1` in L1; where
not, it is the change of :math:`2t - 3t^2`, which has the range [-1, 1/3]. In L2 it is
:math:`\delta^2(4(1-p)^2 + p^2)`, convex in p and so largest at an end: at :math:`p = \delta` at most 1, at
:math:`p = 2 - \delta` it is :math:`\delta^2(8 - 12\delta + 5\delta^2) \le 128/125`, at :math:`\delta = 4/5`.

Sums are released in coarse steps (`tacit.queries.steps`), of which a row has W, 49152 unless many rows change together.
Over k released sums rounding adds k - 1 steps to an L1 distance of W: each sum moves by less than a step more than it
would, and only one of them by whole steps. It adds about :math:`\sqrt k` to an L2 distance.
"""

import abc
import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tacit.datasets.tables.table import Table
from tacit.queries.answer import Reading
from tacit.queries.intervals import combined_radius
from tacit.queries.noise import Distance, at_least_root
from tacit.queries.query import Noisy, NoisySums, Setting, Tally
from tacit.queries.rows import find_bounds, read_numbers
from tacit.queries.steps import UNIT_BITS, units_a_step

# What one row has to share out, in whole units, so that sums are exact; a multiple of 3 and of 2.
WHOLE = 3 << (UNIT_BITS - 2)
_LARGEST_NOISE_SHARE = 0.1
Reals = npt.NDArray[np.float64]
Shares = list[npt.NDArray[np.int64]]


class Moment(NoisySums):
    """What mean and variance have in common: shares of rows, sums of them, and moments from these."""

    first_may_follow: ClassVar[bool] = True
    # What each cell counts for in the mean of t, and in that of t^2; one entry a cell.
    of_first: ClassVar[tuple[float, ...]]
    of_second: ClassVar[tuple[float, ...]]

    @abc.abstractmethod
    def shares(self, scaled: Reals) -> Shares:
        """The integers of each row, one array a cell: none is negative, and in every row they add up to `WHOLE`."""

    @abc.abstractmethod
    def replaced(self) -> Distance:
        """How many units a replaced row moves all cells but the first."""

    def distance(self, setting: Setting) -> Distance:
        find_bounds(setting.schema, self.column)
        units, sums = self.units_a_step(setting), len(self.of_first)
        if self.size_is_public(setting.terms):
            return self.replaced().rounded(units, sums - 1)
        if setting.terms.replaces:  # two wholes, those of a row that leaves and of one that enters
            return Distance(2 * WHOLE, at_least_root(2) * WHOLE).rounded(units, sums)
        return Distance.of_one_integer(WHOLE).rounded(units, sums)

    def units_a_step(self, setting: Setting) -> int:
        return units_a_step(setting.terms.records)

    def rows_a_step(self, noisy: Noisy) -> float:
        """What one released step stands for, in rows."""
        return self.units_a_step(noisy.setting) / WHOLE

    def tally(self, table: Table) -> Tally:
        lower, upper = find_bounds(table.schema, self.column)
        totals, rows = [0] * len(self.of_first), 0
        for numbers in read_numbers(table, self.column, self.where):
            scaled = np.clip((numbers - lower) / (upper - lower), 0.0, 1.0)
            totals = [total + int(part.sum()) for total, part in zip(totals, self.shares(scaled), strict=True)]
            rows += len(numbers)
        return Tally(totals, rows)

    def moments(self, noisy: Noisy) -> tuple[Reals, Reals, float]:
        """The means of t and t^2; what each released cell counts for in them, to first order; the number of rows."""
        cells, rows = np.array(noisy.sums, dtype=np.float64) * self.rows_a_step(noisy), noisy.rows
        size = float(cells.sum()) if rows is None else float(rows)
        counts_for = np.array([self.of_first, self.of_second])[:, -len(cells) :]
        if size <= 0:
            return np.zeros(2), counts_for, 0.0
        means = counts_for @ cells / size
        # Where the number of rows has noise too, every cell takes part in the divisor.
        return means, (counts_for - (means[:, None] if rows is None else 0.0)) / size, size

    def bracket(
        self, value: float, weights: Reals, size: float, most: float, noisy: Noisy
    ) -> tuple[float, list[float]]:
        """The value within [0, ``most``], and its interval: all of that where noise is not small beside the rows."""
        step = self.rows_a_step(noisy)
        relative = noisy.noise.deviation * step / size if size > 0 else math.inf
        if relative > _LARGEST_NOISE_SHARE:
            return (min(max(value, 0.0), most) if size > 0 else most / 2), [0.0, most]
        # Linear in the noise, but for products of two of its terms; rounding moved each sum by half a step at most.
        reach = combined_radius(noisy.noise.mechanism, list(weights * step), noisy.setting.confidence)
        reach += 8 * relative**2 + step * float(np.abs(weights).sum()) / 2
        low, middle, high = (min(max(value + moved, 0.0), most) for moved in (-reach, 0.0, reach))
        return middle, [low, high]


class Mean(Moment):
    """The mean of a column between its bounds."""

    kind: ClassVar[str] = "mean"
    of_first: ClassVar[tuple[float, ...]] = (0.0, 1.0)
    of_second: ClassVar[tuple[float, ...]] = (0.0, 0.0)

    def shares(self, scaled: Reals) -> Shares:
        upper = np.floor(scaled * WHOLE + 0.5).astype(np.int64)
        return [WHOLE - upper, upper]

    def replaced(self) -> Distance:
        return Distance.of_one_integer(WHOLE)

    def interpret(self, noisy: Noisy) -> Reading:
        means, weights, size = self.moments(noisy)
        value, (low, high) = self.bracket(float(means[0]), weights[0], size, 1.0, noisy)
        lower, upper = find_bounds(noisy.setting.schema, self.column)
        scaled = [lower + (upper - lower) * end for end in (value, low, high)]
        noised = "the weighted count of each end, in rows"
        return Reading(scaled[0], scaled[1:], noisy.noise.name, noisy.noise.scale * self.rows_a_step(noisy), noised)


class Variance(Moment):
    """The variance of a column between its bounds: the mean squared distance from the mean, over all rows."""

    kind: ClassVar[str] = "variance"
    of_first: ClassVar[tuple[float, ...]] = (0.0, 0.5, 1.0)
    of_second: ClassVar[tuple[float, ...]] = (0.0, 0.0, 1.0)

    def shares(self, scaled: Reals) -> Shares:
        last = np.floor(scaled**2 * WHOLE).astype(np.int64)
        first = np.minimum(np.floor((1 - scaled) ** 2 * WHOLE).astype(np.int64), WHOLE - last)
        return [first, WHOLE - first - last, last]

    def replaced(self) -> Distance:
        # The last cell is rounded by less than one unit and the middle one by less than two.
        return Distance(4 * (WHOLE // 3) + 4, at_least_root(Fraction(128, 125)) * WHOLE + 3)

    def interpret(self, noisy: Noisy) -> Reading:
        means, weights, size = self.moments(noisy)
        mean, square = (float(moment) for moment in means)
        slopes = weights[1] - 2 * mean * weights[0]
        value, interval = self.bracket(square - mean**2, slopes, size, 0.25, noisy)
        lower, upper = find_bounds(noisy.setting.schema, self.column)
        unit = (upper - lower) ** 2
        noised = "the weighted count of each end and the middle, in rows"
        ends = [unit * end for end in interval]
        return Reading(unit * value, ends, noisy.noise.name, noisy.noise.scale * self.rows_a_step(noisy), noised)
