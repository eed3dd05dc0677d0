r"""Certified epsilon and delta of a composition of dominating pairs, in one direction.

First a rough, certified Rényi bound finds the order :math:`\theta` at which the tail of interest lives. Then the
spacing h of the losses is chosen for it. A loss L between the points a and b = a + h is split between them so that mass
and :math:`E[e^{-L}]` are kept, which raises :math:`E[e^{\theta L}]` by a factor of
:math:`1 + \theta(\theta+1)(L-a)(b-L)/2` to leading order: by :math:`\theta(\theta+1) h^2/12` on average, by half
as much again at most. So n steps raise epsilon by about :math:`n (\theta+1) h^2/12`, and h makes that
`_RELATIVE_ERROR` of epsilon. The number of points is capped, which bounds time and memory at the price of a looser,
still certified, result. Certified means that every truncation, discretisation and the transform's rounding are bounded
and added; the rounding of the profiles and moments themselves, near 1e-13 of each, is not.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from tacit.accounting import convolution
from tacit.accounting.discretisation import LossDistribution, loss_range, on_relative_grid, on_uniform_grid
from tacit.accounting.dominating import DominatingPair, FloatArray
from tacit.accounting.saddlepoint import saddlepoint_epsilon
from tacit.accounting.search import least_within
from tacit.accounting.tail_profile import TailProfile

_RELATIVE_ERROR = 2e-4
_LARGEST_GRID = 2**20
_TAIL_SHARE = 1e-6  # of delta, for losses that are counted as infinite
_LOWER_TAIL = 1e-12  # tilted mass of all steps together that is lifted to the lower end of the losses
_SMALLEST_DELTA = 1e-30
_ORDERS = np.geomspace(1e-3, 1e8, 56)
_LOWER_TILTS = np.geomspace(1, 1 / 128, 8)
_SPARSE_ORDERS = np.geomspace(1e-3, 1e8, 34)
_REFINEMENT = 12
_MOST_ROUNDS = 6
_FINEST_SHARE = 0.01
_ROUGH = 5.0
_WINDOW_TAIL = 1e-14  # tilted mass that may lie beyond either end of the window
_HEADROOM = 18.0  # how far, in logarithms, the tilted tail may lie above delta: rounding takes 1e-12 of it


@dataclasses.dataclass(frozen=True)
class _Saddle:
    """Where the tail lives: the order at which a Rényi bound is best, and that bound."""

    order: float
    value: float


@dataclasses.dataclass(frozen=True)
class PrivacyCurve:
    """The trade of epsilon against delta for pairs (P, Q) that are composed ``counts`` times each."""

    pairs: tuple[DominatingPair, ...]
    counts: tuple[int, ...]

    def epsilon(self, delta: float, *, enough: float = 0.0, coarseness: float = 1.0) -> float:
        """An upper bound on the least epsilon at ``delta``; 0 < delta < 1.

        A rougher bound of at most ``enough`` is returned as it is. The losses lie ``coarseness`` times further apart
        than accuracy demands, which takes less time.
        """
        if sum(self.counts) == 1:
            return self._basic_epsilon(delta)
        composition = _Composition.of(self, _TAIL_SHARE * delta)
        saddle = composition.saddle_at_delta(delta)
        bound = saddle.value
        if 0 < bound <= enough:
            return bound
        if bound == math.inf or (bound > 0 and self._basic_delta(bound) <= delta):
            bound = self._basic_epsilon(delta)
        if bound <= 0 or bound == math.inf:
            return max(bound, 0.0)
        for _ in range(_MOST_ROUNDS):
            profile = composition.profile(saddle.order, bound, bound, math.log(delta), coarseness)
            scale, bound = bound, min(bound, profile.epsilon(delta))
            if bound > 0.7 * scale or bound == 0:
                break
            # Rare, large losses make the Rényi bound loose; then the tail lives elsewhere than it says.
            saddle = composition.saddle_at_epsilon(bound)
        return bound

    def estimated_epsilon(self, delta: float) -> float:
        """About the epsilon at ``delta``, without any guarantee: for searches to start from."""
        if sum(self.counts) == 1:
            return self._basic_epsilon(delta)
        losses = _Composition.of(self, _TAIL_SHARE * delta).losses
        found = saddlepoint_epsilon(self.counts, losses, _SPARSE_ORDERS, delta)
        # The error grows with the square of the spacing, and most of what a coarse grid adds can be taken off again.
        return self.epsilon(delta, coarseness=_ROUGH) / (1 + _ROUGH**2 * _RELATIVE_ERROR) if found is None else found

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta at ``epsilon`` >= 0."""
        bound = self._basic_delta(epsilon)
        if sum(self.counts) == 1:
            return bound
        for _ in range(_MOST_ROUNDS):
            composition = _Composition.of(self, max(_TAIL_SHARE * bound, _SMALLEST_DELTA))
            saddle = composition.saddle_at_epsilon(epsilon)
            renyi = math.exp(min(0.0, saddle.value)) + composition.infinity_mass(composition.losses)
            # An error of 1 / order in epsilon is one of all of delta.
            log_delta = math.log(max(min(bound, renyi), _SMALLEST_DELTA))
            profile = composition.profile(saddle.order, epsilon, 1 / saddle.order, log_delta)
            previous, bound = bound, min(bound, renyi, profile.delta(epsilon))
            if bound > 1e-3 * previous or bound < _SMALLEST_DELTA:
                break
        return bound

    def _basic_delta(self, epsilon: float) -> float:
        """Basic composition with an equal share of epsilon for every step, which is exact for one step."""
        share = np.asarray([epsilon / sum(self.counts)])
        deltas = (count * float(pair.forward(share)[0]) for count, pair in zip(self.counts, self.pairs, strict=True))
        return min(1.0, sum(deltas))

    def _basic_epsilon(self, delta: float) -> float:
        """The epsilon that `_basic_delta` is enough for, on the safe side of rounding."""
        if self._basic_delta(0.0) <= delta:
            return 0.0
        total = sum(self.counts)
        high = total * max(loss_range(pair, delta / total, 1.0)[1] for pair in self.pairs)
        return math.inf if self._basic_delta(high) > delta else least_within(self._basic_delta, delta, 0.0, high)


@dataclasses.dataclass(frozen=True)
class _Composition:
    """The steps with their losses in a form for moments. Small tails already count as infinite losses there."""

    pairs: tuple[DominatingPair, ...]
    counts: tuple[int, ...]
    losses: tuple[LossDistribution, ...]

    @classmethod
    def of(cls, curve: PrivacyCurve, tail: float) -> "_Composition":
        total = sum(curve.counts)
        losses = tuple(on_relative_grid(pair, tail / total, _LOWER_TAIL / total) for pair in curve.pairs)
        return cls(curve.pairs, curve.counts, losses)

    @property
    def _total(self) -> int:
        return sum(self.counts)

    def infinity_mass(self, losses: Sequence[LossDistribution]) -> float:
        """The chance that any of the steps has an infinite loss."""
        survival = (
            count * math.log1p(-min(loss.infinity_mass, 1 - 1e-16))
            for count, loss in zip(self.counts, losses, strict=True)
        )
        return -math.expm1(sum(survival))

    def _moments(self, orders: FloatArray) -> FloatArray:
        parts = (count * loss.log_moments(orders) for count, loss in zip(self.counts, self.losses, strict=True))
        return np.asarray(sum(parts))

    @functools.cached_property
    def _moments_on_grid(self) -> FloatArray:
        return self._moments(_ORDERS)

    def saddle_at_delta(self, delta: float) -> _Saddle:
        """Epsilon by the Rényi bound of Canonne, Kamath and Steinke (2020), proposition 12, at its best order."""
        allowed = delta - self.infinity_mass(self.losses)
        if allowed <= 0:
            return _Saddle(1.0, math.inf)

        def bound(orders: FloatArray, moments: FloatArray) -> FloatArray:
            conversion = math.log(allowed) + np.log1p(orders) - orders * np.log(orders / (orders + 1))
            return np.asarray((moments - conversion) / orders)

        return self._least(bound)

    def saddle_at_epsilon(self, epsilon: float) -> _Saddle:
        """The logarithm of delta by the same bound, but for the infinite losses, at its best order."""

        def bound(orders: FloatArray, moments: FloatArray) -> FloatArray:
            conversion = orders * np.log(orders / (orders + 1)) - np.log1p(orders)
            return np.asarray(moments - orders * epsilon + conversion)

        return self._least(bound)

    def _least(self, bound: Callable[[FloatArray, FloatArray], FloatArray]) -> _Saddle:
        """The order at which a bound that holds at every order is least, on a grid that is refined once."""
        best = int(np.argmin(bound(_ORDERS, self._moments_on_grid)))
        neighbours = _ORDERS[max(best - 1, 0)], _ORDERS[min(best + 1, _ORDERS.size - 1)]
        orders = np.geomspace(*neighbours, _REFINEMENT)
        values = bound(orders, self._moments(orders))
        return _Saddle(float(orders[np.argmin(values)]), float(values.min()))

    def _windows(self, orders: FloatArray, moments: FloatArray) -> list[convolution.Window]:
        """Chernoff bounds, at the best rates on the grid, on where the composed loss lies under each tilt.

        ``moments`` is the cumulant function at the orders.
        """
        spare = -math.log(_WINDOW_TAIL)
        rates: FloatArray = _ORDERS - orders[:, None]
        above, below = orders[:, None] * 1.001 < _ORDERS, orders[:, None] > _ORDERS * 1.001
        with np.errstate(divide="ignore"):
            bounds = (self._moments_on_grid - moments[:, None] + spare) / rates
        ends = np.where(above, bounds, math.inf)
        # At order -1 the moment is that of P's density over Q's, at most 1.
        starts: FloatArray = np.maximum(
            np.where(below, bounds, -math.inf).max(axis=1), (moments - spare) / (orders + 1)
        )
        best = np.arange(orders.size), ends.argmin(axis=1)
        columns = (orders, starts, ends[best], np.where(above[best], rates[best], 0.0))
        return [convolution.Window(*map(float, row)) for row in zip(*columns, strict=True)]

    def _choose_window(self, order: float, epsilon: float, log_delta: float) -> convolution.Window:
        """The narrowest window among tilts up to ``order`` under which the tail still stands out from rounding.

        The full tilt shows the tail best, but where losses are rare and large it also calls up a far end that
        nothing depends on and that the window would have to hold.
        """
        orders: FloatArray = order * _LOWER_TILTS
        moments = self._moments(orders)
        visible = moments - orders * epsilon <= log_delta + _HEADROOM
        visible[0] = True
        windows = self._windows(orders[visible], moments[visible])
        narrowest = min(window.stop - window.start for window in windows)
        return next(window for window in windows if window.stop - window.start <= 1.2 * narrowest)

    def profile(
        self, order: float, epsilon: float, scale: float, log_delta: float, coarseness: float = 1.0
    ) -> TailProfile:
        """The certified profile around ``epsilon``, where it falls at about the rate ``order``.

        The spacing keeps the error in epsilon small against ``scale``.
        """
        total = self._total
        window = self._choose_window(order, epsilon, log_delta)
        ranges = [(loss.negligible_below(window.order, _LOWER_TAIL / total), loss.losses[-1]) for loss in self.losses]
        wanted = math.sqrt(12 * _RELATIVE_ERROR * scale / (total * (order + 1)))
        # Where one large loss among many small ones decides, the profile bends on the scale of epsilon itself, and at
        # 0 on that of a typical loss, which the total variation distance measures.
        distance = max(float(pair.forward(np.zeros(1))[0]) for pair in self.pairs)
        wanted = coarseness * min(wanted, _FINEST_SHARE * max(epsilon, 5 * distance))
        spacing = max(wanted, max(upper - lower for lower, upper in ranges) / _LARGEST_GRID)
        if window.stop < math.inf:
            spacing = max(spacing, (window.stop - window.start) / _LARGEST_GRID)
        atom = max(pair.atom for pair in self.pairs)
        if atom > 0:
            spacing = atom / math.ceil(atom / spacing)
        grids = [on_uniform_grid(pair, spacing, bounds) for pair, bounds in zip(self.pairs, ranges, strict=True)]
        tilted = [
            convolution.tilt(first, loss, count, window.order, total)
            for (first, loss), count in zip(grids, self.counts, strict=True)
        ]
        return convolution.compose(tilted, window, spacing, self.infinity_mass([loss for _, loss in grids]))
