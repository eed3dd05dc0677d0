r"""Rényi differential privacy (Mironov 2017), by dp-accounting, on a fine and wide grid of orders.

The divergence of the Poisson-sampled Gaussian (Mironov, Talwar and Zhang 2019) is computed here, vectorised over the
orders, because calibration asks for it often; selections are `selection`'s, and every other event is dp-accounting's.
The conversion to (epsilon, delta) is that of Canonne, Kamath and Steinke (2020), proposition 12.
"""

import dataclasses
import functools

import numpy as np
from dp_accounting import DpEvent, dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from tacit.accounting.base import refuse_event
from tacit.accounting.conversion import pure_to_rdp
from tacit.accounting.dominating import FloatArray
from tacit.accounting.events import as_sampled_gaussian, flatten
from tacit.accounting.gaussian_moments import log_binomial_moment, log_ratio_moments
from tacit.accounting.relations import contributions_moved, per_sensitivity, reference_relation
from tacit.accounting.selection import selection_divergences, trial_count_of
from tacit.accounting.smooth_release import SmoothReleaseDpEvent
from tacit.accounting.worst_of import WorstOfDpEvent
from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours

_FRACTIONAL = np.concatenate([1 + np.geomspace(0.02, 1, 40), np.arange(2.05, 12, 0.05)])
_WHOLE = np.unique(np.round(np.concatenate([np.arange(12, 65), np.geomspace(66, 50_000, 70)])))
ORDERS: FloatArray = np.concatenate([_FRACTIONAL, _WHOLE])
# Sampling without replacement costs the square of the order, so it is computed at these and interpolated between.
_SPARSE_ORDERS = np.concatenate(
    [np.arange(2, 17), [18, 20, 24, 28, 32, 40, 48, 64, 96, 128], np.round(np.geomspace(257, 4096, 6))]
)
_LEFT_TO_PLD = (
    dp_event.PoissonSampledDpEvent,
    dp_event.MixtureOfGaussiansDpEvent,
    dp_event.TruncatedSubsampledGaussianDpEvent,
)


@dataclasses.dataclass(frozen=True)
class RenyiAccountant:
    """Rényi DP over `ORDERS`: an upper bound for whatever dp-accounting's RDP accountant knows."""

    name: str = "rdp"
    is_upper_bound: bool = True

    def supports(self, event: DpEvent, neighbours: Neighbours) -> bool:
        try:
            for leaf, _ in flatten(event):
                self._check(leaf, neighbours)
        except UnsupportedError:
            return False
        return True

    def epsilon(self, event: DpEvent, delta: float, neighbours: Neighbours) -> float:
        divergences = self.divergences(event, neighbours)
        return float(rdp_privacy_accountant.compute_epsilon(ORDERS, divergences, delta)[0])

    def delta(self, event: DpEvent, epsilon: float, neighbours: Neighbours) -> float:
        divergences = self.divergences(event, neighbours)
        if np.isinf(divergences).all():
            return 1.0
        known = np.isfinite(divergences)
        return float(rdp_privacy_accountant.compute_delta(ORDERS[known], divergences[known], epsilon)[0])

    def divergences(self, event: DpEvent, neighbours: Neighbours) -> FloatArray:
        """The Rényi divergence of the whole event at each of `ORDERS`."""
        total = np.zeros_like(ORDERS)
        for leaf, count in flatten(event):
            total += count * self._leaf(leaf, neighbours)
        return total

    def _leaf(self, leaf: DpEvent, neighbours: Neighbours) -> FloatArray:
        self._check(leaf, neighbours)
        if isinstance(leaf, WorstOfDpEvent):
            return np.asarray(np.max([self.divergences(event, neighbours) for event in leaf.events], axis=0))
        if isinstance(leaf, dp_event.RepeatAndSelectDpEvent):
            return selection_divergences(ORDERS, self.divergences(leaf.event, neighbours), trial_count_of(leaf))
        if isinstance(leaf, dp_event.DiscreteLaplaceDpEvent):
            return _discrete_laplace(leaf.noise_parameter * leaf.sensitivity * contributions_moved(neighbours))
        if isinstance(leaf, SmoothReleaseDpEvent):
            return _smooth_release(leaf)
        leaf = per_sensitivity(leaf, neighbours)
        gaussian = as_sampled_gaussian(leaf, 1)
        if gaussian is not None:
            if gaussian.count == 0:
                return np.zeros_like(ORDERS)
            return _sampled_gaussian(gaussian.sampling_rate, gaussian.noise_multiplier)
        if isinstance(leaf, dp_event.LaplaceDpEvent) and leaf.noise_multiplier == 0:
            return np.full_like(ORDERS, np.inf)
        if isinstance(leaf, dp_event.SampledWithoutReplacementDpEvent):
            return _sampled_without_replacement(leaf, neighbours)
        return _reference(leaf, neighbours, ORDERS)

    def _check(self, leaf: DpEvent, neighbours: Neighbours) -> None:
        """Refuses what dp-accounting does not bound; discrete Laplace noise is bounded as any pure mechanism is.

        Selections and the worst of several events are bounded where their parts are.
        """
        if isinstance(leaf, WorstOfDpEvent | dp_event.RepeatAndSelectDpEvent):
            for event in leaf.events if isinstance(leaf, WorstOfDpEvent) else [leaf.event]:
                for part, _ in flatten(event):
                    self._check(part, neighbours)
            return
        if isinstance(leaf, dp_event.DiscreteLaplaceDpEvent | dp_event.NonPrivateDpEvent | SmoothReleaseDpEvent):
            return
        if not rdp_privacy_accountant.RdpAccountant([2.0], reference_relation(neighbours)).supports(leaf):
            remedy = "Use 'pld'." if isinstance(leaf, _LEFT_TO_PLD) else "No accountant here bounds it."
            raise refuse_event(self.name, leaf, neighbours, remedy)


def _reference(leaf: DpEvent, neighbours: Neighbours, orders: FloatArray) -> FloatArray:
    accountant = rdp_privacy_accountant.RdpAccountant(orders, reference_relation(neighbours))
    return np.asarray(accountant.compose(leaf).rdp)


@functools.lru_cache(maxsize=256)
def _sampled_gaussian(sampling_rate: float, noise_multiplier: float) -> FloatArray:
    if noise_multiplier == 0:
        return np.full_like(ORDERS, np.inf)
    if sampling_rate == 1:
        return ORDERS / (2 * noise_multiplier**2)
    fractional = log_ratio_moments(_FRACTIONAL, sampling_rate, noise_multiplier)
    whole = [log_binomial_moment(int(order), sampling_rate, noise_multiplier) for order in _WHOLE]
    return np.asarray(np.maximum(np.concatenate([fractional, whole]), 0.0) / (ORDERS - 1))


@functools.lru_cache(maxsize=256)
def _discrete_laplace(pure_epsilon: float) -> FloatArray:
    return np.asarray([pure_to_rdp(pure_epsilon, float(order)) for order in ORDERS])


@functools.lru_cache(maxsize=256)
def _smooth_release(leaf: SmoothReleaseDpEvent) -> FloatArray:
    return np.asarray([leaf.divergence(order) if leaf.is_bounded_at(order) else np.inf for order in ORDERS.tolist()])


def _sampled_without_replacement(leaf: DpEvent, neighbours: Neighbours) -> FloatArray:
    """Interpolates the cumulant function (order - 1) D, which is convex and 0 at order 1: the chords lie above it."""
    known = np.concatenate([[1.0], _SPARSE_ORDERS])
    cumulants = np.concatenate([[0.0], (_SPARSE_ORDERS - 1) * _reference(leaf, neighbours, _SPARSE_ORDERS)])
    return np.asarray(np.interp(ORDERS, known, cumulants, right=np.inf) / (ORDERS - 1))
