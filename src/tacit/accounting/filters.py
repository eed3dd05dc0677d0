r"""Budgets that hold although each release is chosen from the results of earlier ones: a filter and an odometer.

Composition theorems speak of parameters that were fixed beforehand. Where an analyst reads one result and then chooses
noise, sampling or the number of the next steps, the sum of the Rényi divergences is itself random. A **filter** is a
stopping rule under which the whole is still private: no release is made that would bring the sum above its limit.

For one order :math:`\alpha` fixed in advance, stopping before :math:`\sum_i D_\alpha^{(i)} > r` gives Rényi DP with
:math:`r` at that order (Feldman and Zrnic 2021, theorem 4.3; Lécuyer 2021), also for releases that run side by side
(Haney et al. 2023). Several orders are used here, each with its own share :math:`\delta_\alpha` of delta and its limit

.. math:: r_\alpha = \epsilon - \log\frac{\alpha - 1}{\alpha} + \frac{\log(\delta_\alpha\alpha)}{\alpha - 1}
          \quad\text{(Canonne, Kamath and Steinke 2020, proposition 12, solved for the divergence)},

and a release is allowed while **any** order stays within its limit. The shares add up to delta, which makes this valid:
split the transcripts by the order that allowed their last release. On the part of order :math:`\alpha` the filter
agrees with the one of that order alone, so that :math:`P(S) \le e^\epsilon Q(S) + \delta_\alpha` there; the parts add
up. The order :math:`\infty`, the sum of pure epsilons, needs no share of delta.
"""

import dataclasses
import functools
import math

import numpy as np
from dp_accounting import DpEvent

from tacit.accounting.composition import BASIC
from tacit.accounting.dominating import FloatArray
from tacit.accounting.renyi import ORDERS, RenyiAccountant
from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Budget, Neighbours
from tacit.core.validation import check_count, check_open_unit

# The orders beside the budget's own, as multiples of its excess over 1. Half of delta is the own order's share.
_NEARBY = 2.0 ** np.array([-4, -3, -2, -1, 1, 2, 3, 4])
_OWN_SHARE = 0.5
_LEVELS = 0.01 * 1.1 ** np.arange(112)  # what an odometer can read: 0.01 to 394 in steps of 10 %
_RENYI = RenyiAccountant()


@dataclasses.dataclass(frozen=True, eq=False)
class RenyiCost:
    """What releases cost: their Rényi divergence at each of `ORDERS` and the sum of their pure epsilons.

    Costs add up and may be multiplied by a count. An entry is infinite where there is no bound.
    """

    divergences: FloatArray
    pure: float

    def __add__(self, other: "RenyiCost") -> "RenyiCost":
        return RenyiCost(self.divergences + other.divergences, self.pure + other.pure)

    def __mul__(self, count: int) -> "RenyiCost":
        return RenyiCost(count * self.divergences, count * self.pure) if count else NO_COST


NO_COST = RenyiCost(np.zeros_like(ORDERS), 0.0)


def renyi_cost(event: DpEvent, neighbours: Neighbours) -> RenyiCost:
    """The cost of an event for one example.

    Raises:
        UnsupportedError: neither a Rényi divergence nor a pure epsilon is known for it.
    """
    pure = BASIC.epsilon(event, 0.0, neighbours) if BASIC.supports(event, neighbours) else math.inf
    try:
        return RenyiCost(_RENYI.divergences(event, neighbours), pure)
    except UnsupportedError:
        if pure == math.inf:
            raise
        return RenyiCost(np.full_like(ORDERS, math.inf), pure)


@dataclasses.dataclass(frozen=True)
class RenyiFilter:
    """The stopping rule of one budget, valid for releases that are chosen adaptively; see the module.

    The budget's own order is the best one for Gaussian noise that uses the whole budget. It holds half of delta, and
    eight orders around it share the rest.

    Attributes:
        budget: epsilon and delta for one privacy unit, both fixed before the first release. With a delta of 0 pure
            epsilons are added up.
        examples: how many examples one unit holds. The filter then runs for one example with the budget that group
            privacy (Vadhan 2017, lemma 2.2) turns into ``budget``.
    """

    budget: Budget
    examples: int = 1

    def __post_init__(self) -> None:
        check_count("examples", self.examples)

    def admits(self, total: RenyiCost) -> bool:
        """Whether everything so far, with the release in question, stays within the budget."""
        return self.epsilon(total) <= self.budget.epsilon

    def epsilon(self, total: RenyiCost) -> float:
        """The least epsilon that would still admit ``total``, with the orders and shares of this budget.

        Comparing it with the budget is the filter. By itself it bounds nothing for adaptive releases: that is what
        `RenyiOdometer` is for.
        """
        indices, overhead = self._conversion
        least = float(np.min(total.divergences[indices] + overhead, initial=math.inf))
        return self.examples * min(max(0.0, least), total.pure)

    @functools.cached_property
    def orders(self) -> FloatArray:
        """The finite orders that may allow a release."""
        return np.asarray(ORDERS[self._conversion[0]])

    @functools.cached_property
    def _conversion(self) -> tuple[np.ndarray, FloatArray]:
        """Where the orders stand in `ORDERS`, and what turns a divergence at each into epsilon at its share."""
        epsilon, delta = self.budget.epsilon / self.examples, _delta_of_one(self.budget, self.examples)
        if delta == 0:
            return np.array([], dtype=int), np.array([])
        gaussian = (epsilon - _overhead(ORDERS, _OWN_SHARE * delta)) / ORDERS
        own = int(np.argmax(gaussian))
        wanted = 1 + (ORDERS[own] - 1) * _NEARBY
        nearby = np.setdiff1d(np.abs(ORDERS[:, None] - wanted).argmin(axis=0), [own])
        indices = np.concatenate([[own], nearby])
        shares = np.concatenate([[_OWN_SHARE], np.full(len(nearby), (1 - _OWN_SHARE) / len(nearby))])
        return indices, _overhead(ORDERS[indices], shares * delta)


@dataclasses.dataclass(frozen=True)
class RenyiOdometer:
    """A running bound on what adaptively chosen releases have cost, with no limit set in advance.

    At whatever moment one stops, also one chosen from the results, the reading epsilon holds: for every set S of
    transcripts that end with that reading, P(S) <= e^epsilon Q(S) + delta's share, and the shares add up to delta. It
    is the smallest of a fixed list of filters (0.01 to 394 in steps of 10 %, each with an equal share of delta) that
    would have let everything through (Lécuyer 2021, section 4; Feldman and Zrnic 2021, section 5). Not knowing the
    limit in advance costs: the reading lies above what a filter made for exactly this total would say.

    Attributes:
        delta: in (0, 1).
        examples: how many examples one unit holds.
    """

    delta: float
    examples: int = 1

    def __post_init__(self) -> None:
        check_open_unit("delta", self.delta)
        check_count("examples", self.examples)

    def reading(self, total: RenyiCost) -> float:
        """Epsilon of everything so far; infinite beyond the last level. Pure epsilons add up without a level."""
        level = next((rule.budget.epsilon for rule in self._filters if rule.admits(total)), math.inf)
        return min(level, self.examples * total.pure)

    @functools.cached_property
    def _filters(self) -> tuple[RenyiFilter, ...]:
        share = self.delta / len(_LEVELS)
        return tuple(RenyiFilter(Budget(float(level), share), self.examples) for level in _LEVELS)


def _overhead(orders: FloatArray, delta: FloatArray | float) -> FloatArray:
    """What epsilon is above the divergence (Canonne, Kamath and Steinke 2020, proposition 12)."""
    return np.asarray(np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1))


def _delta_of_one(budget: Budget, examples: int) -> float:
    """Delta for one example such that a group of so many has the budget's: its epsilon is the budget's share."""
    if examples == 1 or budget.delta == 0:
        return budget.delta
    if budget.epsilon == 0 or budget.epsilon > 700:
        return budget.delta / examples if budget.epsilon == 0 else 0.0  # the factor would overflow; 0 is safe
    return budget.delta * math.expm1(budget.epsilon / examples) / math.expm1(budget.epsilon)
