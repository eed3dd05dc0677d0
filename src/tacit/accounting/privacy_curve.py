r"""Certified epsilon and delta of a composition of dominating pairs, in one direction.

First a rough, certified Rényi bound finds the order :math:`\theta` at which the tail of interest lives. Then the
spacing h of the losses is chosen for it. A loss L between the points a and b = a + h is split between them so that mass
and :math:`E[e^{-L}]` are kept, which raises :math:`E[e^{\theta L}]` by a factor of
:math:`1 + \theta(\theta+1)(L-a)(b-L)/2` to leading order: by :math:`\theta(\theta+1) h^2/12` on average, by half
as much again at most. So n steps raise epsilon by about :math:`n (\theta+1) h^2/12`, and h makes that
`_RELATIVE_ERROR` of epsilon. The number of points is capped, which bounds time and memory at the price of a looser,
still certified, result.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from tacit.accounting import convolution
from tacit.accounting.discretisation import LossDistribution, loss_range, on_relative_grid, on_uniform_grid
from tacit.accounting.dominating import DominatingPair, FloatArray

_RELATIVE_ERROR = 2e-4
_LARGEST_GRID = 2**20
_TAIL_SHARE = 1e-6  # of delta, for losses that are counted as infinite
_LOWER_TAIL = 1e-12  # mass of all steps together that is lifted to the lower end of the losses
_ORDERS = np.geomspace(1e-3, 1e8, 56)
_REFINEMENT = 12
_WINDOW_DEVIATIONS = 16.0


@dataclasses.dataclass(frozen=True)
class _Saddle:
    """Where the tail lives: the order of the tilt, the bound there, and the spread of the tilted sum."""

    order: float
    value: float
    deviation: float


@dataclasses.dataclass(frozen=True)
class PrivacyCurve:
    """The trade of epsilon against delta for pairs (P, Q) that are composed ``counts`` times each."""

    pairs: tuple[DominatingPair, ...]
    counts: tuple[int, ...]

    @functools.cached_property
    def _total(self) -> int:
        return sum(self.counts)

    def epsilon(self, delta: float) -> float:
        """An upper bound on the least epsilon at ``delta``; 0 < delta < 1."""
        tail = _TAIL_SHARE * delta / self._total
        saddle = self._saddle_at_delta(delta, tail)
        if saddle.value <= 0:
            return 0.0
        if saddle.value == math.inf:
            return math.inf
        profile = self._profile(saddle, saddle.value, tail)
        return min(saddle.value, profile.epsilon(delta))

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta at ``epsilon`` >= 0."""
        tail = 1e-30 / self._total
        saddle = self._saddle_at_epsilon(epsilon, tail)
        profile = self._profile(saddle, max(epsilon, saddle.deviation), tail)
        return min(saddle.value, profile.delta(epsilon))

    def _rough(self, tail: float) -> list[LossDistribution]:
        return [on_relative_grid(pair, tail, _LOWER_TAIL / self._total) for pair in self.pairs]

    def _moments(self, rough: Sequence[LossDistribution], orders: FloatArray) -> FloatArray:
        return np.asarray(sum(count * loss.log_moments(orders) for count, loss in zip(self.counts, rough, strict=True)))

    def _infinity_mass(self, losses: Sequence[LossDistribution]) -> float:
        survival = sum(
            count * math.log1p(-min(loss.infinity_mass, 1 - 1e-16))
            for count, loss in zip(self.counts, losses, strict=True)
        )
        return -math.expm1(survival)

    def _saddle_at_delta(self, delta: float, tail: float) -> _Saddle:
        """Minimises the Rényi bound of Canonne, Kamath and Steinke (2020), proposition 12, over the order."""
        rough = self._rough(tail)
        allowed = delta - self._infinity_mass(rough)
        if allowed <= 0:
            return _Saddle(1.0, math.inf, math.inf)

        def bound(orders: FloatArray) -> FloatArray:
            conversion = math.log(allowed) + np.log1p(orders) - orders * np.log(orders / (orders + 1))
            return np.asarray((self._moments(rough, orders) - conversion) / orders)

        return self._minimum(bound, rough)

    def _saddle_at_epsilon(self, epsilon: float, tail: float) -> _Saddle:
        rough = self._rough(tail)

        def log_delta(orders: FloatArray) -> FloatArray:
            conversion = orders * np.log(orders / (orders + 1)) - np.log1p(orders)
            return np.asarray(self._moments(rough, orders) - orders * epsilon + conversion)

        saddle = self._minimum(log_delta, rough)
        value = min(1.0, math.exp(min(0.0, saddle.value)) + self._infinity_mass(rough))
        return dataclasses.replace(saddle, value=value)

    def _minimum(self, bound: Callable[[FloatArray], FloatArray], rough: Sequence[LossDistribution]) -> _Saddle:
        """The order at which a bound that holds at every order is least, on a grid that is refined once."""
        best = int(np.argmin(bound(_ORDERS)))
        neighbours = _ORDERS[max(best - 1, 0)], _ORDERS[min(best + 1, _ORDERS.size - 1)]
        orders = np.geomspace(*neighbours, _REFINEMENT)
        values = bound(orders)
        order = float(orders[np.argmin(values)])
        variances = (loss.tilted_variance(order) for loss in rough)
        variance = sum(count * part for count, part in zip(self.counts, variances, strict=True))
        return _Saddle(order, float(values.min()), math.sqrt(variance))

    def _profile(self, saddle: _Saddle, scale: float, tail: float) -> convolution.TailProfile:
        """The certified profile around the saddle, at a spacing that keeps the error small against ``scale``."""
        order, total = saddle.order, self._total
        ranges = [loss_range(pair, tail, _LOWER_TAIL / total) for pair in self.pairs]
        widest = max([_WINDOW_DEVIATIONS * saddle.deviation, *(upper - lower for lower, upper in ranges)])
        wanted = math.sqrt(12 * _RELATIVE_ERROR * max(scale, 0.1 * saddle.deviation) / (total * (order + 1)))
        spacing = max(wanted, widest / _LARGEST_GRID)
        grids = [on_uniform_grid(pair, spacing, bounds) for pair, bounds in zip(self.pairs, ranges, strict=True)]
        tilted = [
            convolution.tilt(first, loss, count, order, total)
            for (first, loss), count in zip(grids, self.counts, strict=True)
        ]
        return convolution.compose(tilted, order, spacing, self._infinity_mass([loss for _, loss in grids]))
