"""The dominating pair of each event that is not a composition, for every neighbouring relation that it has one for."""

import math

from dp_accounting import DpEvent, dp_event
from scipy import stats

from tacit.accounting import dominating
from tacit.accounting.base import refuse_event
from tacit.accounting.dominating import NO_LOSS, NOT_PRIVATE, DominatingPair
from tacit.accounting.events import gaussian_noise_multiplier
from tacit.accounting.relations import contributions_moved
from tacit.accounting.smooth_release import SmoothReleaseDpEvent
from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours

_LEFT_TO_RDP = (
    dp_event.ZCDpEvent,
    dp_event.SampledWithoutReplacementDpEvent,
    dp_event.SingleEpochTreeAggregationDpEvent,
    dp_event.RepeatAndSelectDpEvent,
    SmoothReleaseDpEvent,
)


def dominating_pair(leaf: DpEvent, neighbours: Neighbours, accountant: str) -> DominatingPair:
    """The pair for a record that is removed (or replaced, or zeroed); its reverse is the pair for one that is added.

    `NO_LOSS` where the event touches no record, `NOT_PRIVATE` where it hides nothing. An event without a known pair
    is an `UnsupportedError`.
    """
    pair = _pair(leaf, neighbours)
    if pair is None:
        remedy = "Use 'rdp'." if isinstance(leaf, _LEFT_TO_RDP) else "No accountant here bounds it."
        raise refuse_event(accountant, leaf, neighbours, remedy)
    return pair


def _pair(leaf: DpEvent, neighbours: Neighbours) -> DominatingPair | None:
    match leaf:
        case dp_event.NonPrivateDpEvent():
            return NOT_PRIVATE
        case dp_event.PoissonSampledDpEvent():
            return _poisson_sampled(leaf, neighbours)
        case dp_event.TruncatedSubsampledGaussianDpEvent():
            return _truncated(leaf, neighbours)
        case dp_event.RandomizedResponseDpEvent():
            return _randomised_response(leaf, neighbours)
        case dp_event.MixtureOfGaussiansDpEvent():
            return _gaussian_mixture(leaf, neighbours)
    return _additive(leaf, contributions_moved(neighbours))


def _additive(leaf: DpEvent, moved: int) -> DominatingPair | None:
    """Noise that is added to a sum which moves by ``moved`` times one record's bound."""
    noise = gaussian_noise_multiplier(leaf)
    if noise is not None:
        if noise == math.inf:
            return NO_LOSS
        return dominating.gaussian(noise / moved) if noise else NOT_PRIVATE
    if isinstance(leaf, dp_event.LaplaceDpEvent):
        return dominating.laplace(leaf.noise_multiplier / moved) if leaf.noise_multiplier else NOT_PRIVATE
    if isinstance(leaf, dp_event.DiscreteLaplaceDpEvent):
        return dominating.discrete_laplace(leaf.noise_parameter, moved * leaf.sensitivity)
    return None


def _poisson_sampled(leaf: DpEvent, neighbours: Neighbours) -> DominatingPair | None:
    inner, rate = _additive(leaf.event, 1), leaf.sampling_probability
    noise = gaussian_noise_multiplier(leaf.event)
    if inner is None or (neighbours is Neighbours.REPLACE_ONE and noise is None):
        return None
    if rate == 0:
        return NO_LOSS
    if inner is NO_LOSS or inner is NOT_PRIVATE:
        return inner
    if neighbours is Neighbours.REPLACE_ONE and noise is not None:
        return dominating.poisson_sampled_gaussian_replaced(noise, rate)
    return dominating.poisson_sampled(inner, rate)


def _truncated(leaf: DpEvent, neighbours: Neighbours) -> DominatingPair:
    """Truncated Poisson sampling, bounded as dp-accounting does (Ganesh 2025, arXiv 2508.15089).

    Where no batch overflows this is Poisson sampling. Where one does, the record may also displace another one: both
    contributions change, which replacing one record under twice the sensitivity bounds from above.
    """
    rate, noise, limit = leaf.sampling_probability, leaf.noise_multiplier, leaf.truncated_batch_size
    if rate == 0:
        return NO_LOSS
    if noise == 0:
        return NOT_PRIVATE
    poisson = (
        dominating.poisson_sampled_gaussian_replaced(noise, rate)
        if neighbours is Neighbours.REPLACE_ONE
        else dominating.poisson_sampled(dominating.gaussian(noise), rate)
    )
    overflow = float(stats.binom.sf(limit - 1, leaf.dataset_size - 1, rate))
    if overflow == 0:
        return poisson
    # The chance that the record is kept, given an overflow; where that underflows, 1 bounds it.
    kept = float(stats.binom.sf(limit, leaf.dataset_size, rate)) * limit / (overflow * leaf.dataset_size) or 1.0
    displaced = dominating.poisson_sampled_gaussian_replaced(noise / 2, min(kept, 1.0))
    return dominating.mixture(displaced, poisson, overflow)


def _randomised_response(leaf: DpEvent, neighbours: Neighbours) -> DominatingPair | None:
    """Zeroing a record stands for an answer that is uniform over the buckets."""
    noise, buckets = leaf.noise_parameter, leaf.num_buckets
    if neighbours is Neighbours.ADD_REMOVE:
        return None
    if buckets == 1 or noise == 1:
        return NO_LOSS
    if noise == 0:
        return NOT_PRIVATE
    each, truth = noise / buckets, 1 - noise + noise / buckets
    if neighbours is Neighbours.REPLACE_ONE:
        return dominating.finite([truth, each, (buckets - 2) * each], [each, truth, (buckets - 2) * each])
    return dominating.finite([truth, (buckets - 1) * each], [1 / buckets, (buckets - 1) / buckets])


def _gaussian_mixture(leaf: DpEvent, neighbours: Neighbours) -> DominatingPair | None:
    if neighbours is Neighbours.REPLACE_ONE:
        return None
    if len(leaf.sensitivities) != len(leaf.sampling_probs) or not math.isclose(sum(leaf.sampling_probs), 1):
        raise InputError(
            f"sampling_probs={leaf.sampling_probs!r}: must be as many as the sensitivities and add up to 1."
        )
    if not any(shift and weight for shift, weight in zip(leaf.sensitivities, leaf.sampling_probs, strict=True)):
        return NO_LOSS
    if leaf.standard_deviation == 0:
        return NOT_PRIVATE
    return dominating.gaussian_mixture(leaf.standard_deviation, leaf.sensitivities, leaf.sampling_probs)
