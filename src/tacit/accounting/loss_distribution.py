r"""Accounting by privacy loss distributions: the default, and the tightest bound here.

Each event has a dominating pair of distributions; the loss of a composition is the sum of the losses, and the whole
curve delta(epsilon) follows (Sommer, Meiser and Mohammadi 2019; Koskela, Jälkö and Honkela 2020). Both directions, a
record added and a record removed, are computed, and the larger epsilon counts. Plain Gaussians compose to one Gaussian,
which is accounted exactly.
"""

import dataclasses
import math

from dp_accounting import DpEvent

from tacit.accounting import dominating
from tacit.accounting.conversion import gaussian_delta, gaussian_epsilon
from tacit.accounting.dominating import DominatingPair
from tacit.accounting.event_pairs import dominating_pair
from tacit.accounting.events import flatten, gaussian_noise_multiplier
from tacit.accounting.privacy_curve import PrivacyCurve
from tacit.accounting.relations import contributions_moved
from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours


@dataclasses.dataclass(frozen=True)
class _Losses:
    """A composition as one Gaussian (infinite noise: none) and dominating pairs; or not private at all."""

    gaussian_noise: float
    pairs: tuple[DominatingPair, ...]
    counts: tuple[int, ...]
    is_private: bool


@dataclasses.dataclass(frozen=True)
class LossDistributionAccountant:
    """Certified upper bounds from privacy loss distributions, within about 0.02 % of epsilon.

    Knows Gaussian, Laplace and discrete Laplace noise, each with or without Poisson sampling, truncated Poisson
    sampling, mixtures of Gaussians and randomised response, and every composition of these. Under replace-one a
    sampled mechanism must be Gaussian.
    """

    name: str = "pld"
    is_upper_bound: bool = True

    def supports(self, event: DpEvent, neighbours: Neighbours) -> bool:
        try:
            self._losses(event, neighbours)
        except UnsupportedError:
            return False
        return True

    def epsilon(self, event: DpEvent, delta: float, neighbours: Neighbours) -> float:
        losses = self._losses(event, neighbours)
        if not losses.is_private:
            return math.inf
        if not losses.pairs:
            return 0.0 if losses.gaussian_noise == math.inf else gaussian_epsilon(losses.gaussian_noise, delta)
        return max(curve.epsilon(delta) for curve in _curves(losses))

    def delta(self, event: DpEvent, epsilon: float, neighbours: Neighbours) -> float:
        losses = self._losses(event, neighbours)
        if not losses.is_private:
            return 1.0
        if not losses.pairs:
            return 0.0 if losses.gaussian_noise == math.inf else gaussian_delta(losses.gaussian_noise, epsilon)
        return max(curve.delta(epsilon) for curve in _curves(losses))

    def _losses(self, event: DpEvent, neighbours: Neighbours) -> _Losses:
        precision, is_private = 0.0, True
        pairs, counts = [], []
        for leaf, count in flatten(event):
            noise = gaussian_noise_multiplier(leaf)
            if noise is not None and noise > 0:
                precision += count * (contributions_moved(neighbours) / noise) ** 2
                continue
            pair = dominating_pair(leaf, neighbours, self.name)
            if pair is dominating.NOT_PRIVATE:
                is_private = False
            elif pair is not dominating.NO_LOSS:
                pairs.append(pair)
                counts.append(count)
        return _Losses(math.inf if precision == 0 else precision**-0.5, tuple(pairs), tuple(counts), is_private)


def _curves(losses: _Losses) -> list[PrivacyCurve]:
    """The curve for a record removed and, where it differs, that for a record added."""
    pairs, counts = losses.pairs, losses.counts
    if losses.gaussian_noise < math.inf:
        pairs, counts = (*pairs, dominating.gaussian(losses.gaussian_noise)), (*counts, 1)
    curves = [PrivacyCurve(pairs, counts)]
    if not all(pair.is_symmetric for pair in pairs):
        curves.append(PrivacyCurve(tuple(pair.reversed() for pair in pairs), counts))
    return curves
