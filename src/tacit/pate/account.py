"""What the answers of a run cost: whatever the votes, and by the votes that were cast."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from dp_accounting import ComposedDpEvent, DpEvent, NoOpDpEvent

from tacit.accounting import epsilon as event_epsilon
from tacit.accounting.pate import (
    PrivateEpsilon,
    confident_gnmax_divergences,
    divergences_epsilon,
    gnmax_divergences,
    lnmax_epsilon,
)
from tacit.core.privacy import Neighbours
from tacit.pate.aggregation import ConfidentGNMax, GNMax, LNMax
from tacit.pate.answering import Round, event_of
from tacit.pate.votes import Votes

_MOMENTS = 128  # beyond the eight that were published: few answers want high moments


def event_of_rounds(rounds: Sequence[Round], neighbours: Neighbours) -> DpEvent:
    """What the questions and answers of all rounds cost together, whatever the votes: what a ledger has counted."""
    return ComposedDpEvent([one.answers.event(one.aggregator, neighbours) for one in rounds])


def certain_event(rounds: Sequence[Round], neighbours: Neighbours) -> DpEvent:
    """What all rounds cost at most: every question as if it had been answered.

    How many pass a test depends on votes and noise, so that a count of them is no bound that was certain before. Where
    a budget ended the questions, how many there were depends on that as well: one more did not fit, and is counted.
    """
    return ComposedDpEvent([_certain(one, neighbours) for one in rounds])


def data_independent_epsilon(
    rounds: Sequence[Round], delta: float, neighbours: Neighbours, *, published: DpEvent | None = None
) -> float:
    """Epsilon of all answers whatever the votes, by `certain_event`: public, and no less than what a ledger counts.

    Args:
        rounds: what was asked, and how it was answered.
        delta, neighbours: of the guarantee.
        published: what else left: the event of a published epsilon. Rényi divergences count both together.
    """
    event = certain_event(rounds, neighbours)
    if published is not None:
        return event_epsilon(ComposedDpEvent([event, published]), delta, accountant="rdp", neighbours=neighbours)
    asked = any(len(one.answers.asked) for one in rounds)
    return event_epsilon(event, delta, neighbours=neighbours) if asked else 0.0


def data_dependent_epsilon(votes: Votes, rounds: Sequence[Round], delta: float) -> PrivateEpsilon | None:
    """Epsilon of all answers where teachers agree as they do; private, since it tells how they agree.

    None for an aggregator that has no such account: a sample's votes are drawn anew each time. Laplace noise has one
    for a single round.
    """
    if len(rounds) == 1 and isinstance(rounds[0].aggregator, LNMax):
        asked = votes[rounds[0].answers.asked]
        return lnmax_epsilon(asked, rounds[0].aggregator.gamma, delta, np.arange(1, _MOMENTS + 1))
    parts = [
        _divergences(votes[one.answers.asked], one, one.aggregator)
        for one in rounds
        if isinstance(one.aggregator, GNMax | ConfidentGNMax)
    ]
    if len(parts) < len(rounds):
        return None
    return PrivateEpsilon(divergences_epsilon(np.sum(parts, axis=0), delta), delta)


def first(rounds: Sequence[Round], count: int) -> list[Round]:
    """The rounds up to so many questions in all."""
    found: list[Round] = []
    for one in rounds:
        found.append(one.first(max(0, count)))
        count -= len(one.answers.asked)
    return found


def query_counts(asked: int, points: int = 20) -> npt.NDArray[np.int64]:
    """Numbers of questions at which a curve of epsilon is drawn."""
    return np.unique(np.linspace(1, max(asked, 1), min(points, max(asked, 1))).round().astype(np.int64))


def _certain(one: Round, neighbours: Neighbours) -> DpEvent:
    if isinstance(one.aggregator.question_event(neighbours), NoOpDpEvent):
        return one.answers.event(one.aggregator, neighbours)
    questions = len(one.answers.asked) + one.answers.out_of_budget
    return event_of(one.aggregator, neighbours, questions, questions)


def _divergences(asked: Votes, one: Round, how: GNMax | ConfidentGNMax) -> npt.NDArray[np.float64]:
    if isinstance(how, GNMax):
        return np.asarray(gnmax_divergences(asked, how.sigma).sum(axis=0))
    each = confident_gnmax_divergences(
        asked,
        np.isin(one.answers.asked, one.answers.rows),
        threshold=how.threshold,
        sigma1=how.sigma_threshold,
        sigma2=how.sigma,
        baseline=one.expected,
    )
    return np.asarray(each.sum(axis=0))
