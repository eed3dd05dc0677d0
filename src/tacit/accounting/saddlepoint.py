r"""Epsilon of a composition, estimated in a fraction of the time of a certified bound: where a search starts.

With the cumulant function K of the composed loss and the order :math:`\theta` at which :math:`K'(\theta) = \epsilon`,
the tilted loss is taken for a Gaussian of variance :math:`s^2 = K''(\theta)`, which gives

.. math:: \delta(\epsilon) \approx \tfrac12 e^{K(\theta) - \theta\epsilon}
          \left(\operatorname{erfcx}(\theta s/\sqrt2) - \operatorname{erfcx}((\theta + 1) s/\sqrt2)\right),

with Edgeworth's first correction by :math:`K^{(3)}(\theta)` (Alghamdi et al. 2023, *The saddle-point method in
differential privacy*). That is exact for Gaussians and close for many steps, and it is no bound.
"""

import math

import numpy as np
from scipy import special

from tacit.accounting.discretisation import LossDistribution
from tacit.accounting.dominating import FloatArray

_REFINEMENT = 8
_SKEWED = 0.7
_LARGEST_RATE = 50.0


def saddlepoint_epsilon(
    counts: tuple[int, ...], losses: tuple[LossDistribution, ...], orders: FloatArray, delta: float
) -> float | None:
    """Epsilon at ``delta``, about; none where the tilted loss is no Gaussian, nearly.

    ``losses`` are taken ``counts`` times each, on grids that are good for moments; ``orders`` is where to look first.
    """
    log_delta = math.log(delta)
    cumulants = _cumulants(counts, losses, orders)
    log_deltas = _log_deltas(orders, cumulants)
    within = np.flatnonzero(log_deltas <= log_delta)
    if within.size == 0 or within[0] == 0:
        return None
    nearby = np.geomspace(orders[within[0] - 1], orders[within[0]], _REFINEMENT)
    order = np.interp(-log_delta, -_log_deltas(nearby, _cumulants(counts, losses, nearby)), nearby)
    here = np.asarray([order])
    cumulants = _cumulants(counts, losses, here)
    _, mean, variance, third = cumulants[:, 0]
    if third > _SKEWED * variance**1.5:
        return None
    # Delta falls by about e^-order for each unit of epsilon, which takes up what the interpolation left.
    return max(0.0, float(mean + (_log_deltas(here, cumulants)[0] - log_delta) / order))


def _cumulants(counts: tuple[int, ...], losses: tuple[LossDistribution, ...], orders: FloatArray) -> FloatArray:
    """K and its first three derivatives in rows, one column an order."""
    return np.asarray(sum(count * loss.cumulants(orders) for count, loss in zip(counts, losses, strict=True)))


def _log_deltas(orders: FloatArray, cumulants: FloatArray) -> FloatArray:
    log_moments, means, variances, thirds = cumulants
    deviations = np.sqrt(np.maximum(variances, 1e-100))
    skewness = thirds / deviations**3
    difference = _weighted_tail(orders * deviations, skewness) - _weighted_tail((orders + 1) * deviations, skewness)
    return np.asarray(log_moments - orders * means + np.log(np.maximum(difference, 1e-300)))


def _weighted_tail(rates: FloatArray, skewness: FloatArray) -> FloatArray:
    """The integral of e^(-rate z) over z > 0 under a normal density with a first correction for skewness.

    Integration by parts gives the moments z, z^2, z^3 under the weight from that of 1. They cancel at large rates,
    where the correction is left out, as it is where it is no longer small.
    """
    zeroth = 0.5 * special.erfcx(rates / math.sqrt(2))
    first = 1 / math.sqrt(2 * math.pi) - rates * zeroth
    second = zeroth - rates * first
    third = 2 * first - rates * second
    correction = skewness / 6 * (third - 3 * first)
    small = (rates < _LARGEST_RATE) & (np.abs(skewness) <= _SKEWED)
    return np.asarray(zeroth + np.where(small, correction, 0.0))
