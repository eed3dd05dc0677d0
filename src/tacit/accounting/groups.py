"""Guarantees for a privacy unit of several examples, from any accountant of one example."""

import dataclasses
import math

from dp_accounting import DpEvent

from tacit.accounting.base import Accountant, Estimator
from tacit.accounting.search import Start, least_feasible
from tacit.core.privacy import Neighbours
from tacit.core.validation import check_count

_SMALLEST_EPSILON, _LARGEST_EPSILON = 1e-9, 500.0
_ROUNDS = 4


@dataclasses.dataclass(frozen=True)
class GroupAccountant:
    r"""Epsilon for up to ``size`` examples that come and go together, by group privacy:

    .. math:: \delta_k(\epsilon) = \delta(\epsilon / k)\,\frac{e^\epsilon - 1}{e^{\epsilon / k} - 1}

    (Vadhan 2017, lemma 2.2, read at every epsilon of the base accountant's privacy curve). Epsilon is the least value
    at which this delta suffices, rounded up.

    Attributes:
        base: the accountant of one example.
        size: k, how many examples one unit holds at most.
    """

    base: Accountant
    size: int

    def __post_init__(self) -> None:
        check_count("size", self.size)

    @property
    def name(self) -> str:
        return f"{self.base.name} with group privacy for {self.size} examples"

    @property
    def is_upper_bound(self) -> bool:
        return self.base.is_upper_bound

    def supports(self, event: DpEvent, neighbours: Neighbours) -> bool:
        """Whatever the base accountant supports."""
        return self.base.supports(event, neighbours)

    def delta(self, event: DpEvent, epsilon: float, neighbours: Neighbours) -> float:
        """Delta for the unit at epsilon >= 0."""
        single = self.base.delta(event, epsilon / self.size, neighbours)
        if epsilon > _LARGEST_EPSILON:
            return float(single > 0)  # the factor may overflow, and 1 is always a bound
        factor = self.size if epsilon == 0 else math.expm1(epsilon) / math.expm1(epsilon / self.size)
        return min(1.0, single * factor)

    def epsilon(self, event: DpEvent, delta: float, neighbours: Neighbours) -> float:
        """Epsilon for the unit at delta in (0, 1), within 0.1 % of the least; infinite above 500."""
        if self.delta(event, 0.0, neighbours) <= delta:
            return 0.0

        def gap(log_epsilon: float) -> float:
            found = self.delta(event, math.exp(log_epsilon), neighbours)
            return math.log(found / delta) if found > 0 else -math.inf

        high, growth = max(self.estimate(event, delta, neighbours), _SMALLEST_EPSILON), 1.01
        while high < _LARGEST_EPSILON and gap(math.log(high)) > 0:
            high, growth = high * growth, min(growth**2, 1.5)
        if high >= _LARGEST_EPSILON:
            return math.inf
        start = Start(math.log(high), rate=max(1.0, -2 * math.log(delta)))  # as for Gaussian tails
        return math.exp(least_feasible(gap, start, math.log(_SMALLEST_EPSILON), start.x))

    def estimate(self, event: DpEvent, delta: float, neighbours: Neighbours) -> float:
        """About epsilon for the unit, by a few rounds of the formula above, read at the base accountant's epsilon."""
        of_one = self.base.estimate if isinstance(self.base, Estimator) else self.base.epsilon
        found = self.size * of_one(event, delta, neighbours)
        for _ in range(_ROUNDS):
            if not 0 < found < _LARGEST_EPSILON:
                break
            share = delta * math.expm1(found / self.size) / math.expm1(found)
            found = self.size * of_one(event, max(share, 1e-300), neighbours)
        return found


def for_unit(accountant: Accountant, size: int) -> Accountant:
    """The accountant for units of up to ``size`` examples."""
    return accountant if size == 1 else GroupAccountant(accountant, size)
