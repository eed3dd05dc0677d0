r"""The plan of a private selection among configurations: the noise of every trial for a budget of the whole.

One trial is a mechanism of its own: a public coin chooses a configuration, DP-SGD trains it on part A of the training
records, and a count of right predictions on the rest, part B, is released with discrete Gaussian noise: the score. Who
lies in A or B is decided by row numbers alone. A record of A changes the model, and the score only through it; a
record of B changes the score alone. So a trial costs, at each Rényi order, the largest of what each configuration's
training costs and what the score costs (`WorstOfDpEvent`), and the best of K trials what
`tacit.accounting.selection` says.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from dp_accounting import DpEvent

from tacit.accounting import RenyiAccountant, calibrate_noise, epsilon
from tacit.accounting.events import event_key
from tacit.accounting.renyi import ORDERS
from tacit.accounting.selection import TruncatedNegativeBinomial, selection_event
from tacit.accounting.worst_of import WorstOfDpEvent
from tacit.core.privacy import Budget, Neighbours, PrivacyUnit, Statement
from tacit.mechanisms import DiscreteGaussian
from tacit.plan import DPSGD
from tacit.recipes.recipe import Configuration

ACCOUNTANT = "rdp"
_ROUNDED_UP = 1 + 1e-9


@dataclasses.dataclass(frozen=True)
class SelectionPlan:
    """What the guarantee of a selection depends on; public and frozen.

    Attributes:
        plans: of each configuration's training, on part A.
        score: the noise on the number of right predictions on part B, which one record changes by at most 1.
        trials: how the number of trials is distributed.
        budget: what the selection as a whole may cost.
    """

    plans: tuple[DPSGD, ...]
    score: DiscreteGaussian
    trials: TruncatedNegativeBinomial
    budget: Budget

    @property
    def neighbours(self) -> Neighbours:
        """The relation of every plan."""
        return self.plans[0].neighbours

    @property
    def unit(self) -> PrivacyUnit:
        """The unit of every plan."""
        return self.plans[0].unit

    def event(self) -> DpEvent:
        """The selection whole: the worst of every training and the score, as often as it is tried."""
        return _selected([plan.event() for plan in self.plans] + [self.score.event()], self.trials)

    def epsilon(self) -> float:
        """Of the selection, at the budget's delta."""
        return _cost(self.event(), self.budget.delta, self.neighbours)

    def statement(self, winner: int) -> Statement:
        """The guarantee of what is released: the chosen configuration's number, its model and its score."""
        plan = self.plans[winner]
        return Statement(
            epsilon=self.epsilon(),
            delta=self.budget.delta,
            neighbours=self.neighbours,
            unit=self.unit,
            mechanism=(
                f"a private selection among {len(self.plans)} settings: the best of a random number of trials "
                f"({self.trials.describe()}; Papernot and Steinke 2021), each of which trains one of the settings by "
                f"DP-SGD and scores it by a count on held-out training records with discrete Gaussian noise of scale "
                f"{float(self.score.scale):.4g}; the chosen one took {plan.steps} steps with noise multiplier "
                f"{plan.noise_multiplier:.6g} and {plan.clipping.describe()}"
            ),
            sampler=plan.sampler.describe(),
            accountant=ACCOUNTANT,
            caveats=(
                "it covers the chosen model, its settings and its score, but neither how many trials there were, nor "
                "how long they took, nor any other trial: keep these secret",
            ),
        )


def plan_selection(
    configurations: Sequence[Configuration], examples: int, budget: Budget, trials: TruncatedNegativeBinomial
) -> SelectionPlan:
    """Finds the noise of every trial such that the selection as a whole keeps to the budget.

    Each configuration gets the least noise with which it could be selected alone. Then all get more of it by one factor
    until the worst of them at each order keeps to the budget. The score gets the least noise with which it costs no
    more than training does, at every order: it makes nothing dearer.

    Args:
        configurations: what is chosen among; epsilon, noise and delta of their own are ignored.
        examples: the public number of records in part A.
        budget: of the selection.
        trials: how many there are.

    Raises:
        InputError: the budget cannot be kept, or the plans have preparations that alone exceed it.
    """
    for configuration in configurations:
        configuration.refuse_dear_preparations(
            examples, budget.epsilon, lambda event: _cost(_selected([event], trials), budget.delta)
        )
    given = [with_noise(configuration, 1.0, budget.delta).plan(examples) for configuration in configurations]
    alone: dict[str, float] = {}
    for plan in given:
        key = event_key(plan.event())
        if key not in alone:
            alone[key] = _calibrated([plan], [1.0], budget, trials)
    noises = [alone[event_key(plan.event())] for plan in given]
    factor = _calibrated(given, noises, budget, trials) if len(alone) > 1 else 1.0
    plans = tuple(_noised(plan, factor * noise) for plan, noise in zip(given, noises, strict=True))
    return SelectionPlan(plans, _free_score(plans), trials, budget)


def _calibrated(
    plans: Sequence[DPSGD], noises: Sequence[float], budget: Budget, trials: TruncatedNegativeBinomial
) -> float:
    """The least factor on all noises that keeps to the budget."""
    return calibrate_noise(
        lambda factor: _selected([_noised(p, factor * s).event() for p, s in zip(plans, noises, strict=True)], trials),
        budget,
        accountant=ACCOUNTANT,
        neighbours=plans[0].neighbours,
    )


def _cost(event: DpEvent, delta: float, neighbours: Neighbours = Neighbours.ADD_REMOVE) -> float:
    return epsilon(event, delta, accountant=ACCOUNTANT, neighbours=neighbours)


def _selected(events: Sequence[DpEvent], trials: TruncatedNegativeBinomial) -> DpEvent:
    distinct = list({event_key(event): event for event in events}.values())
    return selection_event(WorstOfDpEvent(distinct), trials)


def _free_score(plans: Sequence[DPSGD]) -> DiscreteGaussian:
    r"""Discrete Gaussian noise of zCDP :math:`\rho = \min_\alpha D_\alpha / \alpha`, so that :math:`\rho\alpha` lies
    below the divergences of training at every order."""
    trained = WorstOfDpEvent([plan.event() for plan in plans])
    divergences = RenyiAccountant().divergences(trained, plans[0].neighbours)
    rho = float(np.min(divergences / ORDERS))
    return DiscreteGaussian(math.sqrt(1 / (2 * rho)) * _ROUNDED_UP, 1)


def with_noise(configuration: Configuration, noise: float, delta: float) -> Configuration:
    return dataclasses.replace(configuration, epsilon=None, noise_multiplier=noise, delta=delta)


def _noised(plan: DPSGD, noise: float) -> DPSGD:
    return dataclasses.replace(plan, noise_multiplier=noise)
