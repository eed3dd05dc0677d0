"""What the answers of a run cost: whatever the votes, and by the votes that were cast."""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from tacit.accounting import epsilon as event_epsilon
from tacit.accounting.pate import (
    PrivateEpsilon,
    ReleasedEpsilon,
    SmoothRelease,
    confident_gnmax_cost,
    confident_gnmax_epsilon,
    gnmax_cost,
    gnmax_epsilon,
    lnmax_epsilon,
    release_epsilon,
)
from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.mechanisms import Gaussian
from tacit.pate.aggregation import Aggregator, ConfidentGNMax, GNMax, LNMax
from tacit.pate.answering import Answers
from tacit.pate.votes import Votes

_MOMENTS = 128  # beyond the eight that were published: few answers want high moments
_SMOOTHNESS = 0.2  # over the order: beta is about as large as the order allows
_RELEASE_SHARE = 0.1  # of the data-independent cost that the release of the number may take


def data_independent_epsilon(answers: Answers, aggregator: Aggregator, delta: float, neighbours: Neighbours) -> float:
    """Epsilon of these answers whatever the votes: what a ledger counts, and public."""
    if not len(answers.asked):
        return 0.0
    return event_epsilon(answers.event(aggregator, neighbours), delta, neighbours=neighbours)


def data_dependent_epsilon(
    votes: Votes, answers: Answers, aggregator: Aggregator, delta: float
) -> PrivateEpsilon | None:
    """Epsilon of these answers where teachers agree as they do; private, since it tells how they agree.

    None for an aggregator that has no such account: a sample's votes are drawn anew each time.
    """
    asked = votes[answers.asked]
    if isinstance(aggregator, LNMax):
        return lnmax_epsilon(asked, aggregator.gamma, delta, np.arange(1, _MOMENTS + 1))
    if isinstance(aggregator, GNMax):
        return gnmax_epsilon(asked, aggregator.sigma, delta)
    if isinstance(aggregator, ConfidentGNMax):
        return confident_gnmax_epsilon(
            asked,
            np.isin(answers.asked, answers.rows),
            delta,
            threshold=aggregator.threshold,
            sigma1=aggregator.sigma_threshold,
            sigma2=aggregator.sigma,
        )
    return None


def first(answers: Answers, count: int) -> Answers:
    """The answers to the first questions alone."""
    asked = answers.asked[:count]
    early = np.isin(answers.rows, asked)
    return dataclasses.replace(answers, asked=asked, rows=answers.rows[early], labels=answers.labels[early])


def published_epsilon(
    votes: Votes, answers: Answers, aggregator: Aggregator, delta: float, randomness: Randomness
) -> ReleasedEpsilon:
    r"""The data-dependent epsilon with noise by smooth sensitivity, so that it may leave the building.

    The order, the smoothness and the noise are chosen by public facts: the order that is best for a tenth of the cost
    that the answers have whatever the votes, and noise that adds about as much.

    Raises:
        InputError: for an aggregator without Gaussian noise, whose smooth sensitivity is not known.
    """
    aggregator = check_publishable(aggregator)
    asked, teachers = votes[answers.asked], int(votes[answers.asked].sum(1).max())
    slope = _divergence_slope(aggregator, len(answers.asked), len(answers.rows))
    order = _public_order(_RELEASE_SHARE * slope, delta)
    if isinstance(aggregator, GNMax):
        cost = gnmax_cost(asked, aggregator.sigma, order, teachers=teachers)
    else:
        cost = confident_gnmax_cost(
            asked,
            np.isin(answers.asked, answers.rows),
            threshold=aggregator.threshold,
            sigma1=aggregator.sigma_threshold,
            sigma2=aggregator.sigma,
            order=order,
            teachers=teachers,
        )
    release = SmoothRelease(_SMOOTHNESS / order, noise_multiplier=math.sqrt(1 / (2 * _RELEASE_SHARE * slope)))
    drawn = Gaussian(1.0, 1.0).add_noise(0.0, randomness.fork().stream("published epsilon"))
    return release_epsilon(cost, release, delta, standard_normal=drawn)


def check_publishable(aggregator: Aggregator) -> GNMax | ConfidentGNMax:
    """Refuses what has no smooth sensitivity."""
    if not isinstance(aggregator, GNMax | ConfidentGNMax):
        raise InputError(
            f"aggregator={aggregator.name!r}: its epsilon cannot be published by smooth sensitivity. Take gnmax or "
            "confident-gnmax, or publish the data-independent one."
        )
    return aggregator


def _divergence_slope(aggregator: GNMax | ConfidentGNMax, asked: int, answered: int) -> float:
    """The Rényi divergence of all answers whatever the votes, over the order."""
    slope = answered / aggregator.sigma**2
    if isinstance(aggregator, ConfidentGNMax):
        slope += asked / (2 * aggregator.sigma_threshold**2)
    return slope


def _public_order(slope: float, delta: float) -> float:
    """The order with the least epsilon, slope * order + log(1 / delta) / (order - 1)."""
    return 1 + math.sqrt(math.log(1 / delta) / slope)


def query_counts(asked: int, points: int = 20) -> npt.NDArray[np.int64]:
    """Numbers of questions at which a curve of epsilon is drawn."""
    return np.unique(np.linspace(1, max(asked, 1), min(points, max(asked, 1))).round().astype(np.int64))
