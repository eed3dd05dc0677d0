"""What several releases cost together, by three theorems."""

import dataclasses
from collections.abc import Sequence

from dp_accounting import DpEvent, dp_event

from tacit.accounting import epsilon
from tacit.accounting.composition import PureStep, Steps, basic, strong_rigorous
from tacit.accounting.events import SampledGaussian
from tacit.core.privacy import Neighbours, PrivacyUnit
from tacit.core.validation import check_open_unit
from tacit.queries.noise import Cost, Guarantee


@dataclasses.dataclass(frozen=True)
class Composition:
    """What several releases cost together, for one unit, by three theorems. Each is a proven upper bound.

    Attributes:
        basic: epsilons add up.
        strong: Kairouz, Oh and Viswanath (2015), theorem 3.5, or basic composition where that is better.
        pld: privacy loss distributions, the tightest.
        delta: of all three.
    """

    basic: float
    strong: float
    pld: float
    delta: float

    def to_dict(self) -> dict[str, float]:
        """Epsilons by name."""
        return {"basic": self.basic, "strong": self.strong, "pld": self.pld}


def compose(costs: Sequence[Cost], delta: float, neighbours: Neighbours, unit: PrivacyUnit) -> Composition:
    """Epsilon of several releases at ``delta`` for one unit, whose rows change together in all of them."""
    check_open_unit("delta", delta)
    if not costs:
        return Composition(0.0, 0.0, 0.0, delta)
    steps = _steps([cost.guarantee(unit.max_examples) for cost in costs])
    by_losses = epsilon(composed_event(costs, unit.max_examples), delta, neighbours=neighbours)
    return Composition(basic(steps, delta), strong_rigorous(steps, delta), by_losses, delta)


def composed_event(costs: Sequence[Cost], records: int = 1) -> DpEvent:
    """One event for all releases."""
    return dp_event.ComposedDpEvent([cost.event(records) for cost in costs])


def _steps(guarantees: Sequence[Guarantee]) -> Steps:
    gaussian = [(one.noise_over_distance, one.count) for one in guarantees if one.noise_over_distance is not None]
    pure = [(one.epsilon, one.count) for one in guarantees if one.epsilon is not None]
    return Steps(
        tuple(SampledGaussian(1.0, noise, count) for noise, count in gaussian),
        tuple(PureStep(1.0, cost, count) for cost, count in pure),
    )
