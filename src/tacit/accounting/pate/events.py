r"""The data-independent events of PATE, one for each noisy question, for the ledger and every accountant.

In PATE a moved vote changes two counts by 1 each, whether a unit is added, removed, replaced or emptied, because the
unit sits with one teacher. Multipliers of events are relative to **one record's contribution**, which accountants
double under replace-one (`relations`); here nothing doubles, so under replace-one the events state twice the noise.

Validity: the teacher of a unit must not depend on other units. A balanced split of a shuffled data set keeps to that
while the size is public (replace-one, zero-out); under add-remove each unit must choose its teacher by itself.
"""

import math

from dp_accounting import DpEvent, dp_event

from tacit.accounting.relations import contributions_moved
from tacit.core.privacy import Neighbours
from tacit.core.validation import check_count, check_positive, check_probability

ADD_REMOVE = Neighbours.ADD_REMOVE


def lnmax_event(gamma: float, neighbours: Neighbours = ADD_REMOVE) -> DpEvent:
    r"""One LNMax query: two counts that move by 1 each under Laplace noise of scale 1 / gamma; (2 gamma, 0)-DP."""
    scale = contributions_moved(neighbours) / check_positive("gamma", gamma)
    return dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(scale), 2)


def gnmax_event(sigma: float, neighbours: Neighbours = ADD_REMOVE) -> DpEvent:
    r"""One GNMax query: counts that move by :math:`\sqrt2` under noise :math:`\sigma`; RDP
    :math:`\lambda/\sigma^2`."""
    return dp_event.GaussianDpEvent(contributions_moved(neighbours) * check_positive("sigma", sigma) / math.sqrt(2))


def threshold_event(sigma: float, neighbours: Neighbours = ADD_REMOVE) -> DpEvent:
    r"""One test of the highest count, which moves by 1 under noise :math:`\sigma`; RDP :math:`\lambda/(2\sigma^2)`."""
    return dp_event.GaussianDpEvent(contributions_moved(neighbours) * check_positive("sigma", sigma))


def confident_gnmax_event(
    asked: int, answered: int, *, sigma1: float, sigma2: float, neighbours: Neighbours = ADD_REMOVE
) -> DpEvent:
    """A whole run of Confident-GNMax: every query asked was tested, those that passed were answered."""
    return dp_event.ComposedDpEvent(
        [
            dp_event.SelfComposedDpEvent(threshold_event(sigma1, neighbours), check_count("asked", asked, minimum=0)),
            dp_event.SelfComposedDpEvent(gnmax_event(sigma2, neighbours), check_count("answered", answered, minimum=0)),
        ]
    )


def knn_screening_event(sampling_rate: float, sigma: float) -> DpEvent:
    r"""One noisy test of Private-kNN: the highest count among the neighbours, within a Poisson sample of its own.

    The votes are those of the k nearest records of the sample. A record that joins them pushes the farthest one out:
    one vote moves, the highest count by at most 1.
    """
    return _sampled(sampling_rate, check_positive("sigma", sigma))


def knn_vote_event(sampling_rate: float, sigma: float) -> DpEvent:
    r"""One noisy answer of Private-kNN, from a Poisson sample of its own (Zhu, Yu, Chandraker and Wang 2020).

    Adding or removing a sampled record moves one vote (see `knn_screening_event`), hence the counts by
    :math:`\sqrt2`: one more neighbour is one less of another kind. The event holds for every relation, since two
    records that replace each other move the counts of the rest by :math:`\sqrt2` each.

    **The sample must be drawn afresh after the test**: then test and answer are two sampled mechanisms, and only
    answers that were given are charged. For both on one sample take `knn_query_event`.
    """
    return _sampled(sampling_rate, check_positive("sigma", sigma) / math.sqrt(2))


def knn_query_event(sampling_rate: float, sigma1: float, sigma2: float) -> DpEvent:
    """One query of Private-kNN that tests and answers on one Poisson sample; charged whether it was answered or not."""
    both = dp_event.ComposedDpEvent([threshold_event(sigma1), gnmax_event(sigma2)])
    return dp_event.PoissonSampledDpEvent(check_probability("sampling_rate", sampling_rate), both)


def knn_event(asked: int, answered: int, *, sampling_rate: float, sigma1: float | None, sigma2: float) -> DpEvent:
    """A whole run of Private-kNN with fresh samples for tests and answers; without tests where ``sigma1`` is None."""
    answers = dp_event.SelfComposedDpEvent(
        knn_vote_event(sampling_rate, sigma2), check_count("answered", answered, minimum=0)
    )
    if sigma1 is None:
        return answers
    tests = dp_event.SelfComposedDpEvent(
        knn_screening_event(sampling_rate, sigma1), check_count("asked", asked, minimum=0)
    )
    return dp_event.ComposedDpEvent([tests, answers])


def _sampled(sampling_rate: float, noise_multiplier: float) -> DpEvent:
    return dp_event.PoissonSampledDpEvent(
        check_probability("sampling_rate", sampling_rate), dp_event.GaussianDpEvent(noise_multiplier)
    )
