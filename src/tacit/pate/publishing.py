r"""An epsilon for the votes that were cast, made so that it may be published, and what that costs.

Everything about it is chosen before the first question: so a ledger can set its cost aside, and a budget that ends the
questions still holds it.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence
from typing import Self

import numpy as np

from tacit.accounting.pate import PrivateCost, ReleasedEpsilon, confident_gnmax_cost, gnmax_cost, release_epsilon
from tacit.accounting.smooth_release import SmoothReleaseDpEvent
from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.ledger import Reservation
from tacit.mechanisms import Gaussian
from tacit.pate.aggregation import Aggregator, ConfidentGNMax, GNMax
from tacit.pate.answering import Round, Terms, reserved
from tacit.pate.votes import Votes

# Shares of what the answers cost whatever the votes, found on made-up votes of 250 teachers that mostly agree.
_ORDER_SHARE = 0.4  # at which the order is the best one
_NOISE_SHARE = 0.03  # that the noise adds to it
_SMOOTHNESS = 0.3  # over the order: beta is about as large as the order allows
_FAILURE = 0.05


@dataclasses.dataclass(frozen=True)
class Publication:
    """How a data-dependent epsilon will be published, by noise in proportion to smooth sensitivity.

    Guarantee: the number that leaves costs `event`, whatever the votes, and holds for the answers and itself together
    except with the chance ``failure`` of the event.

    Attributes:
        order: the Rényi order at which the cost is counted.
        event: smoothness and noise.
    """

    order: float
    event: SmoothReleaseDpEvent

    @classmethod
    def planned(cls, asking: Sequence[tuple[Aggregator, int]], delta: float) -> Self:
        """By public facts: how many questions each aggregator gets at most, and what they cost whatever the votes.

        Raises:
            InputError: for an aggregator without Gaussian noise, whose smooth sensitivity is not known.
        """
        slope = sum(questions * _divergence_slope(aggregator) for aggregator, questions in asking)
        order = _best_order(_ORDER_SHARE * slope, delta)
        noise_multiplier = math.sqrt(1 / (2 * _NOISE_SHARE * slope))
        return cls(order, SmoothReleaseDpEvent(_SMOOTHNESS / order, noise_multiplier, _FAILURE))

    def reserved(self, terms: Terms) -> Reservation:
        """Sets its cost aside, before the first question."""
        return reserved(self.event, 1, dataclasses.replace(terms, run=f"{terms.run} (published epsilon)"))

    def epsilon(
        self, votes: Votes, rounds: Sequence[Round], delta: float, randomness: Randomness, reservation: Reservation
    ) -> ReleasedEpsilon:
        """The number, once: its noise is drawn after the ledger knows of it.

        Args:
            votes: on all public inputs; private.
            rounds: what was asked and answered.
            delta: of the epsilon.
            randomness: of the noise.
            reservation: from `reserved`.
        """
        cost = self.unsafe_cost(votes, rounds)
        reservation.before_noise(0)
        drawn = Gaussian(1.0, 1.0).add_noise(0.0, randomness.fork().stream("published epsilon"))
        return release_epsilon(cost, self.event, delta, standard_normal=drawn)

    def unsafe_cost(self, votes: Votes, rounds: Sequence[Round]) -> PrivateCost:
        """What all rounds cost for these votes; private."""
        teachers = int(votes[rounds[0].answers.asked].sum(1).max())
        costs = [_cost(votes, one, self.order, teachers) for one in rounds if len(one.answers.asked)]
        return functools.reduce(operator.add, costs)


def _cost(votes: Votes, one: Round, order: float, teachers: int) -> PrivateCost:
    asked, how = votes[one.answers.asked], _publishable(one.aggregator)
    if isinstance(how, GNMax):
        return gnmax_cost(asked, how.sigma, order, teachers=teachers)
    return confident_gnmax_cost(
        asked,
        np.isin(one.answers.asked, one.answers.rows),
        threshold=how.threshold,
        sigma1=how.sigma_threshold,
        sigma2=how.sigma,
        order=order,
        teachers=teachers,
        baseline=one.expected,
    )


def _divergence_slope(aggregator: Aggregator) -> float:
    """The Rényi divergence of a question and its answer whatever the votes, over the order."""
    how = _publishable(aggregator)
    test = 0.0 if isinstance(how, GNMax) else 1 / (2 * how.sigma_threshold**2)
    return test + 1 / how.sigma**2


def _publishable(aggregator: Aggregator) -> GNMax | ConfidentGNMax:
    if isinstance(aggregator, GNMax | ConfidentGNMax):
        return aggregator
    raise InputError(
        f"aggregator={aggregator.name!r}: its epsilon cannot be published by smooth sensitivity. Take gnmax or "
        "confident-gnmax, or publish the data-independent one."
    )


def _best_order(slope: float, delta: float) -> float:
    """The order with the least epsilon, slope * order + log(1 / delta) / (order - 1)."""
    return 1 + math.sqrt(math.log(1 / delta) / slope)
