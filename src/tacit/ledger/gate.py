"""The two rules by which an account adds up what is spent and decides what the budget still holds."""

import abc
import functools
import math
from collections import Counter

from tacit.accounting.filters import NO_COST, RenyiCost, RenyiFilter, RenyiOdometer, renyi_cost
from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Budget
from tacit.ledger.spending import Events, compose, decode_event, unit_epsilon
from tacit.ledger.terms import Rule, Terms

# A filter prepares its orders once; an account asks the same one at every reservation.
_filter = functools.lru_cache(maxsize=64)(RenyiFilter)


class Gate(abc.ABC):
    """One rule for one account's terms.

    A composition that was found to fit is remembered: every part of it fits too. Each time one is looked for, a little
    more than was asked for is tried, so that many small reservations need few computations.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._fits: Events = Counter()
        self._ahead = 0

    @abc.abstractmethod
    def epsilon(self, events: Events, delta: float) -> float:
        """What the events cost together at delta; infinite where no bound is finite."""

    def admits(self, events: Events, budget: Budget) -> bool:
        """Whether the budget holds the events."""
        if events <= self._fits:
            return True
        if self._ahead:
            more = Counter({event: count + self._ahead for event, count in (events - self._fits).items()})
            if self._remember(events + more, budget):
                self._ahead *= 2
                return True
        fits = self._remember(events, budget)
        self._ahead = 1 if fits and not self._ahead else 0
        return fits

    def spare(self, events: Events) -> Events:
        """What is known to fit beside the events that were admitted last."""
        return self._fits - events if events <= self._fits else Counter()

    def _remember(self, events: Events, budget: Budget) -> bool:
        fits = self._holds(events, budget)
        if fits:
            self._fits = Counter(events)
        return fits

    @abc.abstractmethod
    def _holds(self, events: Events, budget: Budget) -> bool:
        """`admits`, computed; whatever holds some events also holds fewer."""


class FixedPlan(Gate):
    """Privacy loss distributions of everything together; Rényi divergences where those do not cover an event."""

    def epsilon(self, events: Events, delta: float) -> float:
        return unit_epsilon(compose(events), delta, neighbours=self._terms.neighbours, unit=self._terms.unit)

    def _holds(self, events: Events, budget: Budget) -> bool:
        return self.epsilon(events, budget.delta) <= budget.epsilon


class Adaptive(Gate):
    """The Rényi filter of the account's budget, and an odometer where it has none; see `tacit.accounting.filters`."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._costs: dict[str, RenyiCost] = {}

    def epsilon(self, events: Events, delta: float) -> float:
        budget = self._terms.budget
        if budget is None:
            return self.odometer(events, delta)
        return _filter(Budget(budget.epsilon, delta), self._terms.unit.max_examples).epsilon(self._total(events))

    def _holds(self, events: Events, budget: Budget) -> bool:
        return _filter(budget, self._terms.unit.max_examples).admits(self._total(events))

    def odometer(self, events: Events, delta: float) -> float:
        """What was spent so far, with no limit set in advance; at delta 0 the sum of pure epsilons."""
        total, examples = self._total(events), self._terms.unit.max_examples
        return examples * total.pure if delta == 0 else RenyiOdometer(delta, examples).reading(total)

    def _total(self, events: Events) -> RenyiCost:
        return sum((self._cost(event) * count for event, count in events.items()), NO_COST)

    def _cost(self, event: str) -> RenyiCost:
        if event not in self._costs:
            self._costs[event] = renyi_cost(decode_event(event), self._terms.neighbours)
        return self._costs[event]


GATES: dict[Rule, type[Gate]] = {Rule.FIXED_PLAN: FixedPlan, Rule.ADAPTIVE: Adaptive}


def under_both_rules(terms: Terms, events: Events, delta: float) -> dict[str, dict[str, float | None]]:
    """Spent and remaining epsilon by each rule, as plain values; None stands for no bound and for no limit."""
    limit = terms.budget.epsilon if terms.budget is not None and terms.budget.delta == delta else None
    found = {}
    for rule, gate in GATES.items():
        try:
            spent = gate(terms).epsilon(events, delta)
        except UnsupportedError:
            spent = math.inf
        remaining = None if limit is None else max(0.0, limit - spent)
        found[rule.value] = {"spent": spent if spent < math.inf else None, "remaining": remaining}
    return found
