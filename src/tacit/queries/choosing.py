"""Queries whose answer is chosen: a quantile, and the most common values."""

import dataclasses
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.core.validation import check_count
from tacit.datasets.tables.schema import Schema
from tacit.datasets.tables.table import Table
from tacit.mechanisms.exponential import Exponential
from tacit.mechanisms.noisy_max import NoisyMax
from tacit.mechanisms.selection import Selection
from tacit.queries.answer import Reading
from tacit.queries.counting import Bins, Histogram, cell_names, count_cells
from tacit.queries.noise import Guarantee
from tacit.queries.query import Query, Setting, Tally, refuse_gaussian
from tacit.queries.rows import find_bounds, power_of_two_step, read_numbers
from tacit.queries.terms import Terms

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_BITS = 16
_LARGEST_DENOMINATOR = 10**6


@dataclasses.dataclass(frozen=True)
class Choices:
    """What some choices cost together.

    Attributes:
        mechanism: of each; its spread is that of one row.
        rounds: how many choices.
        neighbours: the relation that the spread was counted for.
    """

    mechanism: Selection
    rounds: int
    neighbours: Neighbours

    def event(self, records: int) -> "DpEvent":
        from dp_accounting import dp_event

        mechanism = dataclasses.replace(self.mechanism, spread=records * Fraction(self.mechanism.spread))
        one = mechanism.event(self.neighbours)
        return one if self.rounds == 1 else dp_event.SelfComposedDpEvent(one, self.rounds)

    def guarantee(self, records: int) -> Guarantee:
        return Guarantee(epsilon=records * self.mechanism.epsilon, count=self.rounds)


@dataclasses.dataclass(frozen=True)
class Quantile(Query):
    r"""A number below which about a share q of the rows lies, chosen by the exponential mechanism.

    Candidates are the points of a public grid between the bounds, some 2^15 to 2^16 of them with a power of two between
    two neighbours, to which the rows' numbers are rounded. With :math:`a` rows below a candidate, :math:`b` above and
    the others on it, which count as either, its loss is how far 0 lies outside
    :math:`[(1-q)a - q(n-a), (1-q)(n-b) - qb]`: the number of rows, roughly, by which it misses the quantile. A row that
    is added or removed moves each end by q or by 1 - q, so that a loss changes by at most max(q, 1 - q); a row that is
    replaced changes it by at most 1. Spreads are twice that; but for q = 0 and q = 1 a loss counts the rows on one
    side, all losses change the same way, and their spread is 1.

    The number of rows n enters the loss only, and is not released.

    Attributes:
        q: from 0 (the least) to 1 (the largest); the decimal number that was written counts.
    """

    kind: ClassVar[str] = "quantile"

    q: float = 0.5

    def __post_init__(self) -> None:
        if isinstance(self.q, bool) or not isinstance(self.q, int | float) or not 0 <= self.q <= 1:
            raise InputError(f"q={self.q!r}: must lie between 0 and 1, such as 0.5 for the median.")

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"q": self.q}

    def cost(self, setting: Setting) -> "Choices":
        self.check(setting.schema)
        find_bounds(setting.schema, self.column)
        refuse_gaussian(self.kind, setting.terms)
        share = self._share
        change = 1 if setting.terms.replaces else max(share, 1 - share)
        spread = 1 if share in (0, 1) else 2 * change
        return _choices(Exponential, spread * share.denominator, 1, setting.terms)

    def tally(self, table: Table) -> Tally:
        lower, _ = find_bounds(table.schema, self.column)
        points, step = candidates(table.schema, self.column)
        counts = np.zeros(len(points), dtype=np.int64)
        for numbers in read_numbers(table, self.column, self.where):
            places = np.floor((numbers - lower) / step + 0.5).astype(np.int64)
            counts += np.bincount(np.clip(places, 0, len(points) - 1), minlength=len(points))
        return Tally(counts.tolist(), int(counts.sum()))

    def read(self, tally: Tally, setting: Setting, stream: np.random.Generator) -> Reading:
        mechanism, unit = self.cost(setting).mechanism, self._share.denominator
        points, _ = candidates(setting.schema, self.column)
        place = mechanism.choose(self.losses(np.array(tally.sums)), stream)
        facts = {"rank_error": mechanism.loss_bound(len(points), setting.confidence) / unit}
        scale = 1 / float(mechanism.rate) / unit
        return Reading(float(points[place]), None, "an exponential mechanism", scale, "the rank, in rows", facts)

    def losses(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The losses of the candidates, times q's denominator."""
        up_to = np.cumsum(counts)
        below, above = up_to - counts, up_to[-1] - up_to
        up, down = self._share.denominator - self._share.numerator, self._share.numerator
        low = up * below - down * (counts + above)
        high = up * (below + counts) - down * above
        return np.asarray(np.maximum(np.maximum(low, -high), 0))

    @property
    def _share(self) -> Fraction:
        return Fraction(str(self.q)).limit_denominator(_LARGEST_DENOMINATOR)


@dataclasses.dataclass(frozen=True)
class Top(Query):
    """The most common values, most common first, each by report noisy max; how common they are is not released.

    Cells are those of a `Histogram`. A row that is added raises one count by 1, so that the spread of the losses, which
    are the counts' negatives, is 1; a row that is replaced raises one count and lowers another, and it is 2. One value
    is reported after another, each at an equal part of epsilon and without those reported before.

    Attributes:
        bins: as for a histogram.
        count: how many values to report.
    """

    kind: ClassVar[str] = "top"

    bins: Bins | None = None
    count: int = 1

    def __post_init__(self) -> None:
        check_count("count", self.count)
        Histogram(self.column, self.bins)

    def describe(self) -> dict[str, Any]:
        return Histogram(self.column, self.bins, where=self.where).describe() | {"kind": self.kind, "count": self.count}

    def cost(self, setting: Setting) -> "Choices":
        self.check(setting.schema)
        refuse_gaussian(self.kind, setting.terms)
        cells = len(cell_names(setting.schema, self.column, self.bins))
        if self.count > cells:
            raise InputError(f"count={self.count}: must be at most {cells}, the number of cells.")
        return _choices(NoisyMax, 2 if setting.terms.replaces else 1, self.count, setting.terms)

    def tally(self, table: Table) -> Tally:
        return count_cells(table, self.column, self.bins, self.where)

    def read(self, tally: Tally, setting: Setting, stream: np.random.Generator) -> Reading:
        mechanism = self.cost(setting).mechanism
        names, losses = cell_names(setting.schema, self.column, self.bins), -np.array(tally.sums)
        left, found = list(range(len(names))), []
        for _ in range(self.count):
            found.append(left.pop(mechanism.choose(losses[left], stream)))
        facts = {"count_error": mechanism.loss_bound(len(names), 1 - (1 - setting.confidence) / self.count)}
        scale, chosen = 1 / float(mechanism.rate), [names[place] for place in found]
        return Reading(chosen, None, "report noisy max", scale, "each count", facts)


def candidates(schema: Schema, column: str) -> tuple[npt.NDArray[np.float64], float]:
    """The values that a quantile may take, and the step between two of them."""
    lower, upper = find_bounds(schema, column)
    step = power_of_two_step(upper - lower, _BITS)
    places = np.arange(int(np.floor((upper - lower) / step + 0.5)) + 1)
    return np.minimum(lower + step * places, upper), step


def _choices(kind: type[Selection], spread: int | Fraction, rounds: int, terms: Terms) -> Choices:
    """Equal parts of epsilon for each choice, for as many rows as one unit has."""
    rate = terms.exact_epsilon / (rounds * terms.records * Fraction(spread))
    return Choices(kind(rate, spread), rounds, terms.neighbours)
