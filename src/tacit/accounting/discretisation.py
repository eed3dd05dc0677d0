r"""Pessimistic discrete forms of a privacy loss, by connecting the dots of the privacy profile.

Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), *Connect the dots: tighter discrete approximations of privacy
loss distributions*: among all distributions on a given grid of losses there is a least one whose profile lies above the
true one; it meets the true profile at the grid's points and joins them by the segments that a loss distribution
allows (linear in :math:`e^\epsilon`). Each loss between two points is split between them so that mass and
:math:`E[e^{-L}]` are kept, so the error is of second order in the spacing.
"""

import dataclasses
import functools
import math

import numpy as np

from tacit.accounting.dominating import DominatingPair, FloatArray, Profile

_SEARCH_GRID = np.geomspace(1e-14, 1e9, 24 * 23)
_COARSE = 24
_RELATIVE_SPACING = 0.025


@dataclasses.dataclass(frozen=True)
class LossDistribution:
    """Masses at increasing losses, with the mass at infinity apart. A profile computed from it is an upper bound."""

    losses: FloatArray
    masses: FloatArray
    infinity_mass: float

    @functools.cached_property
    def _occupied(self) -> tuple[FloatArray, FloatArray]:
        keep = self.masses > 0
        return self.losses[keep], np.log(self.masses[keep])

    def log_moments(self, orders: FloatArray) -> FloatArray:
        r"""The cumulant function :math:`K(t) = \log E[e^{tL}; L < \infty]` at each order t."""
        losses, log_masses = self._occupied
        exponents = np.multiply.outer(orders, losses)
        exponents += log_masses
        top = exponents.max(axis=1)
        exponents -= top[:, None]
        return np.asarray(top + np.log(np.exp(exponents, out=exponents).sum(axis=1)))

    def cumulants(self, orders: FloatArray) -> FloatArray:
        """The cumulant function and its first three derivatives in rows, one column an order."""
        losses, log_masses = self._occupied
        exponents = np.multiply.outer(orders, losses)
        exponents += log_masses
        top = exponents.max(axis=1)
        exponents -= top[:, None]
        tilted = np.exp(exponents, out=exponents)
        scale = max(-float(losses[0]), float(losses[-1]))
        powers = np.vander(losses / scale, 4, increasing=True)
        total, first, second, third = (tilted @ powers).T
        mean = first / total
        variance = second / total - mean**2
        skew = third / total - 3 * mean * variance - mean**3
        return np.stack([top + np.log(total), scale * mean, scale**2 * variance, scale**3 * skew])

    def negligible_below(self, order: float, share: float) -> float:
        """A loss to which all smaller ones may be lifted: their tilted mass there is at most ``share``; at most 0."""
        with np.errstate(divide="ignore"):
            log_lifted = np.log(np.cumsum(self.masses)) + order * self.losses
        negligible = self.losses[log_lifted <= math.log(share) + float(self.log_moments(np.asarray([order]))[0])]
        return min(0.0, float(negligible[-1])) if negligible.size else float(self.losses[0])


def loss_range(pair: DominatingPair, upper_tail: float, lower_tail: float) -> tuple[float, float]:
    """Losses between which all but small tails of P lie: beyond the upper one the profile is below ``upper_tail``.

    What lies above counts as an infinite loss, what lies below is lifted to the lower end; both are pessimistic.
    """
    lower = _first_light(lambda losses: np.exp(-losses) * pair.backward(losses), lower_tail)
    return -lower, _first_light(pair.forward, upper_tail)


def _first_light(tail: Profile, limit: float) -> float:
    """The first loss of the search grid from which on a falling tail stays within ``limit``; the last where none is.

    Every `_COARSE`-th loss is looked at first, then those between two of them.
    """

    def after_last_heavy(losses: FloatArray) -> int:
        heavy = np.flatnonzero(tail(losses) > limit)
        return 0 if heavy.size == 0 else int(heavy[-1]) + 1

    coarse = after_last_heavy(_SEARCH_GRID[::_COARSE])
    start = max(coarse - 1, 0) * _COARSE
    index = start + after_last_heavy(_SEARCH_GRID[start : start + _COARSE])
    return float(_SEARCH_GRID[min(index, _SEARCH_GRID.size - 1)])


def connect_the_dots(pair: DominatingPair, losses: FloatArray) -> LossDistribution:
    """The least pessimistic distribution on increasing ``losses``, of which one must be 0.

    Below 0 the profile is 1 - e^x + g(x) with a small g, and the segments through the first two terms put no mass
    anywhere but at the ends; so g alone is differenced there, which keeps the relative precision of the lower tail.
    """
    zero = int(np.searchsorted(losses, 0.0))
    gaps = np.diff(losses)
    above = np.minimum.accumulate(pair.forward(losses[zero:]))
    below = np.exp(losses[: zero + 1]) * pair.backward(-losses[: zero + 1])
    steps = np.concatenate([np.diff(np.maximum.accumulate(below)), np.diff(above)])
    masses = np.zeros_like(losses)
    masses[1:] += steps / np.expm1(-gaps)
    masses[:-1] -= steps * np.exp(-gaps) / np.expm1(-gaps)
    masses[zero] += 1.0
    masses[0] -= below[0]
    return LossDistribution(losses, np.maximum(masses, 0.0), float(above[-1]))


def on_relative_grid(pair: DominatingPair, upper_tail: float, lower_tail: float) -> LossDistribution:
    """A form on losses whose spacing grows with their size: small, accurate at every scale, good for moments only.

    The total variation distance is the scale of typical losses. Much finer spacing than that would only resolve the
    rounding errors of the profile.
    """
    lower, upper = loss_range(pair, upper_tail, lower_tail)
    scale = max(float(pair.forward(np.zeros(1))[0]), 1e-300) / 10

    def side(end: float) -> FloatArray:
        reach = math.asinh(end / scale)
        points = scale * np.sinh(np.linspace(0.0, reach, math.ceil(reach / _RELATIVE_SPACING) + 1))[1:]
        return np.asarray(points)

    return connect_the_dots(pair, np.concatenate([-side(-lower)[::-1], [0.0], side(upper)]))


def on_uniform_grid(pair: DominatingPair, spacing: float, bounds: tuple[float, float]) -> tuple[int, LossDistribution]:
    """A form on whole multiples of ``spacing`` that cover ``bounds``, with the first multiple's index."""
    first = min(int(np.floor(bounds[0] / spacing)), -1)
    last = max(int(np.ceil(bounds[1] / spacing)), 1)
    return first, connect_the_dots(pair, spacing * np.arange(first, last + 1, dtype=np.float64))
