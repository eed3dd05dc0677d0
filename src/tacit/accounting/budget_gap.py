"""How far an event lies from a budget, exactly as an accountant counts, and about as far by quicker means."""

import dataclasses
import math

from dp_accounting import DpEvent
from scipy import special

from tacit.accounting.accountants import ACCOUNTANTS, check_question, epsilon, find_accountant
from tacit.accounting.base import Accountant, Estimator
from tacit.accounting.gaussian_dp import GaussianDpAccountant
from tacit.accounting.loss_distribution import LossDistributionAccountant
from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Budget, Neighbours
from tacit.core.validation import check_open_unit, check_positive

_LIMIT = GaussianDpAccountant()


@dataclasses.dataclass(frozen=True)
class BudgetGap:
    """Gaps log(epsilon / target) of events: at most 0 exactly where epsilon keeps to the target."""

    target: float
    delta: float
    accountant: Accountant
    neighbours: Neighbours

    @classmethod
    def of(cls, budget: Budget, accountant: str | Accountant, neighbours: Neighbours) -> "BudgetGap":
        """Refuses an accountant that is no upper bound, and a budget without an epsilon or a delta."""
        chosen = find_accountant(accountant, upper_bounds_only=True)
        target = check_positive("epsilon", budget.epsilon, remedy="Typical budgets lie between 0.1 and 10.")
        remedy = "Take it well below 1 / number of examples, such as 1e-5."
        return cls(target, check_open_unit("delta", budget.delta, remedy=remedy), chosen, neighbours)

    def certified(self, event: DpEvent) -> float:
        """The gap as the accountant counts; where it is positive, one direction that exceeds the target is enough."""
        if isinstance(self.accountant, LossDistributionAccountant):
            check_question(event, self.neighbours)
            spent = self.accountant.epsilon(event, self.delta, self.neighbours, stop_above=self.target)
        else:
            spent = epsilon(event, self.delta, accountant=self.accountant, neighbours=self.neighbours)
        return self._log_ratio(spent)

    def estimated(self, event: DpEvent) -> float:
        """About the gap, by the accountant's own estimate or by that of PLD; not a number where there is none."""
        check_question(event, self.neighbours)
        estimator = self.accountant if isinstance(self.accountant, Estimator) else ACCOUNTANTS["pld"]
        if not isinstance(estimator, Estimator):
            return math.nan
        try:
            return self._log_ratio(estimator.estimate(event, self.delta, self.neighbours))
        except UnsupportedError:
            return math.nan

    def in_the_limit(self, event: DpEvent) -> float:
        """Roughly the gap for many steps of Gaussian noise, in microseconds; not a number for other events.

        With mu-GDP, delta is near the normal tail beyond epsilon / mu - mu / 2, which is solved for mu.
        """
        check_question(event, self.neighbours)
        try:
            mu = _LIMIT.mu(event, self.neighbours)
        except UnsupportedError:
            return math.nan
        quantile = max(-float(special.ndtri(self.delta)), 0.0)
        allowed = 2 * self.target / (math.sqrt(quantile**2 + 2 * self.target) + quantile)
        return self._log_ratio(self.target * mu / allowed)

    def _log_ratio(self, spent: float) -> float:
        if spent == 0 or spent == math.inf:
            return -math.inf if spent == 0 else math.inf
        ratio = math.log(spent / self.target)
        return min(ratio, 0.0) if spent <= self.target else max(ratio, 5e-324)
