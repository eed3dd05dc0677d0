r"""Epsilon of a composition, estimated in a fraction of the time of a certified bound: where a search starts.

With the cumulant function K of the composed loss and the order :math:`\theta` at which :math:`K'(\theta) = \epsilon`,
the tilted loss is taken for a Gaussian of variance :math:`s^2 = K''(\theta)`, which gives

.. math:: \delta(\epsilon) \approx \tfrac12 e^{K(\theta) - \theta\epsilon}
          \left(\operatorname{erfcx}(\theta s/\sqrt2) - \operatorname{erfcx}((\theta + 1) s/\sqrt2)\right)

(Alghamdi et al. 2023, *The saddle-point method in differential privacy*). That is exact for Gaussians and close for
many steps. Where the tilted loss is skewed, one large loss among small ones decides instead, and delta is about the sum
of the steps' own deltas at the same epsilon. Nothing here is a bound.
"""

import math

import numpy as np
from scipy import special

from tacit.accounting.discretisation import LossDistribution
from tacit.accounting.dominating import DominatingPair, FloatArray

_REFINEMENT = 8
_SKEWED = 1.0


def estimated_epsilon(
    pairs: tuple[DominatingPair, ...],
    counts: tuple[int, ...],
    losses: tuple[LossDistribution, ...],
    orders: FloatArray,
    delta: float,
) -> float:
    """Epsilon at ``delta``, about; 0 where it is small. ``losses`` are those of the pairs, on grids for moments."""
    log_delta = math.log(delta)
    cumulants = _cumulants(counts, losses, orders)
    log_deltas = _log_deltas(orders, cumulants)
    within = np.flatnonzero(log_deltas <= log_delta)
    if within.size == 0 or within[0] == 0:
        return _largest_loss_epsilon(pairs, counts, losses, delta)
    nearby = np.geomspace(orders[within[0] - 1], orders[within[0]], _REFINEMENT)
    order = np.interp(-log_delta, -_log_deltas(nearby, _cumulants(counts, losses, nearby)), nearby)
    here = np.asarray([order])
    cumulants = _cumulants(counts, losses, here)
    _, mean, variance, third = cumulants[:, 0]
    if third > _SKEWED * variance**1.5:
        return _largest_loss_epsilon(pairs, counts, losses, delta)
    # Delta falls by about e^-order for each unit of epsilon, which takes up what the interpolation left.
    return max(0.0, float(mean + (_log_deltas(here, cumulants)[0] - log_delta) / order))


def _cumulants(counts: tuple[int, ...], losses: tuple[LossDistribution, ...], orders: FloatArray) -> FloatArray:
    """K and its first three derivatives in rows, one column an order."""
    return np.asarray(sum(count * loss.cumulants(orders) for count, loss in zip(counts, losses, strict=True)))


def _log_deltas(orders: FloatArray, cumulants: FloatArray) -> FloatArray:
    log_moments, means, variances, _ = cumulants
    scale = np.sqrt(np.maximum(variances, 0.0) / 2)
    difference = special.erfcx(orders * scale) - special.erfcx((orders + 1) * scale)
    return np.asarray(log_moments - orders * means + np.log(np.maximum(difference, 1e-300) / 2))


def _largest_loss_epsilon(
    pairs: tuple[DominatingPair, ...], counts: tuple[int, ...], losses: tuple[LossDistribution, ...], delta: float
) -> float:
    """The epsilon at which the steps' own deltas add up to ``delta``."""
    epsilons = np.unique(np.concatenate([loss.losses[loss.losses >= 0] for loss in losses]))
    deltas = np.asarray(sum(count * pair.forward(epsilons) for count, pair in zip(counts, pairs, strict=True)))
    log_deltas = np.log(np.maximum(np.minimum.accumulate(deltas), 1e-300))
    return float(np.interp(-math.log(delta), -log_deltas, epsilons))
