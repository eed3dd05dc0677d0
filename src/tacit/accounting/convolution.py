r"""Composition of privacy losses by a Fourier transform under an exponential tilt.

The loss of a composition is a sum of independent losses, so its distribution is a convolution. A plain transform
loses everything below its rounding, about 1e-12 of the largest mass, and delta lives in that tail. Here every loss is
tilted first, :math:`\tilde p(x) = p(x)\,e^{\theta x - K(\theta)}`, with the order :math:`\theta` that centres the sum
on the epsilon of interest; the transform then resolves just that region, and

.. math:: \delta(\epsilon) = e^{\sum K(\theta) - \theta\epsilon}
          \sum_{x > \epsilon} \tilde p(x)\, e^{-\theta (x - \epsilon)} (1 - e^{-(x - \epsilon)})

needs no cancellation. What trimming and the window leave out is bounded by Chernoff's inequality, the rounding of the
transform by its computed spectrum, and both are added: the result stays an upper bound.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from scipy import fft, signal

from tacit.accounting.discretisation import LossDistribution
from tacit.accounting.dominating import FloatArray

_TRIMMED = 1e-14  # tilted mass of all steps together that is trimmed away, and added back as an upper bound
_NEGLIGIBLE_LOG_MAGNITUDE = -60.0
_LARGEST_WINDOW = 2**22
_MOST_LIFTED_CELLS = 64
_NEGLIGIBLE_LOG_MASS = math.log(1e-13)
_RATE_SHARES = 0.25 ** np.arange(8)


@dataclasses.dataclass(frozen=True)
class Window:
    """The part of the composed loss that is resolved, under a tilt of some order.

    Attributes:
        order: the order of the tilt.
        start, stop: the least and the largest loss that are resolved; an infinite end takes all there is.
        rate: the rate at which Chernoff's inequality bounds what lies beyond the end.
    """

    order: float
    start: float
    stop: float
    rate: float


@dataclasses.dataclass(frozen=True)
class TiltedLoss:
    """One step's tilted loss, taken ``count`` times: masses at ``first``, ``first`` + 1, … times the spacing."""

    first: int
    masses: FloatArray
    count: int
    log_moment: float

    @property
    def indices(self) -> FloatArray:
        return self.first + np.arange(self.masses.size, dtype=np.float64)

    @property
    def mean(self) -> float:
        return float(self.masses @ self.indices / self.masses.sum())

    def log_central_moment(self, rate: float) -> float:
        """log E[exp(rate (index - mean))], times the count."""
        exponents = rate * (self.indices - self.mean)
        top = float(exponents.max())
        return self.count * (top + math.log(float(self.masses @ np.exp(exponents - top))))


@dataclasses.dataclass(frozen=True)
class TailProfile:
    """An upper bound on delta(epsilon) around the centre of a tilted, composed loss.

    Attributes:
        losses, masses: the tilted distribution on evenly spaced losses.
        order, log_moment: the tilt's order and the cumulant function of the composition there.
        left_out: tilted mass that lies nowhere on the losses.
        rounding: by how much each of the masses may be too small.
        infinity_mass: the chance of an infinite loss, not tilted.
    """

    losses: FloatArray
    masses: FloatArray
    order: float
    log_moment: float
    left_out: float
    rounding: float
    infinity_mass: float

    @functools.cached_property
    def _sums(self) -> tuple[FloatArray, FloatArray]:
        """At each loss x: sums over y >= x of mass(y) e^(-t (y - x)), for t = order and t = order + 1."""
        spacing = float(self.losses[1] - self.losses[0])
        backwards = self.masses[::-1]
        upper, lower = (
            signal.lfilter([1.0], [1.0, -math.exp(-rate * spacing)], backwards)[::-1]
            for rate in (self.order, self.order + 1)
        )
        return upper, lower

    @functools.cached_property
    def _unresolved(self) -> float:
        """What left-out mass and rounding may add: the largest weight e^(-t y) (1 - e^(-y)) and the sum of all weights.

        The weights rise and fall once, so their sum is at most their integral over the spacing plus the largest.
        """
        heaviest = math.exp(self.order * math.log(self.order / (self.order + 1))) / (self.order + 1)
        spacing = float(self.losses[1] - self.losses[0])
        all_weights = heaviest + 1 / (spacing * self.order * (self.order + 1))
        return self.left_out * heaviest + self.rounding * all_weights

    def delta(self, epsilon: float) -> float:
        """A certified delta at ``epsilon``; 1 where epsilon lies outside the window."""
        if not self.losses[0] <= epsilon <= self.losses[-1]:
            return 1.0
        away = self.losses[self.losses > epsilon] - epsilon
        inside = self.masses[self.losses > epsilon] @ (np.exp(-self.order * away) * -np.expm1(-away))
        log_delta = math.log(float(inside) + self._unresolved) + self.log_moment - self.order * epsilon
        return min(1.0, math.exp(min(0.0, log_delta)) + self.infinity_mass)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 whose delta is certified; infinite where the window shows none."""
        if delta <= self.infinity_mass:
            return math.inf
        upper, lower = self._sums
        # In units of exp(log_moment - order x), the unit of the sums at x, this much is allowed at x.
        log_allowed = math.log(delta - self.infinity_mass) - self.log_moment + self.order * self.losses
        allowed = np.exp(np.minimum(log_allowed, 700.0)) - self._unresolved
        certified = np.flatnonzero(upper - lower <= allowed)
        if certified.size == 0:
            return math.inf
        j = int(certified[0])
        if j == 0:
            return max(0.0, float(self.losses[0]))
        # Epsilon lies in (x[j-1], x[j]], where the sums run from x[j] on; the unresolved part is largest at x[j-1].
        spacing = float(self.losses[j] - self.losses[j - 1])
        inside = allowed[j] + self._unresolved * -math.expm1(self.order * spacing)
        excess = (upper[j] - inside) / lower[j] if lower[j] > 0 else math.inf
        refined = self.losses[j] + math.log(excess) if excess > 0 else -math.inf
        return max(0.0, float(np.clip(refined, self.losses[j - 1], self.losses[j])))


def tilt(first: int, loss: LossDistribution, count: int, order: float, total_count: int) -> TiltedLoss:
    """Tilts one step's loss and trims its ends; all steps together lose at most `_TRIMMED` of tilted mass."""
    log_moment = float(loss.log_moments(np.asarray([order]))[0])
    with np.errstate(divide="ignore"):
        masses = np.exp(order * loss.losses + np.log(loss.masses) - log_moment)
    allowance = _TRIMMED / (2 * total_count)
    heavy = (np.cumsum(masses) > allowance) & (np.cumsum(masses[::-1])[::-1] > allowance)
    start, stop = int(np.argmax(heavy)), masses.size - int(np.argmax(heavy[::-1]))
    return TiltedLoss(first + start, masses[start:stop], count, log_moment)


def _place(losses: Sequence[TiltedLoss], window: Window, spacing: float) -> tuple[int, int]:
    """First index and length of the window on the grid, within what the losses can reach.

    Mass to the left of the window wraps around into it, so a cut there is pessimistic, never wrong.
    """
    lowest = sum(loss.count * loss.first for loss in losses)
    highest = sum(loss.count * (loss.first + loss.masses.size - 1) for loss in losses)
    # Connecting the dots lifts each loss by up to one cell, which shows where few, bounded losses are composed.
    lifted = min(sum(loss.count for loss in losses), _MOST_LIFTED_CELLS)
    stop = highest if window.stop == math.inf else min(highest, math.ceil(window.stop / spacing) + lifted)
    start = max(lowest, math.floor(window.start / spacing), stop - _LARGEST_WINDOW)
    return min(start, stop - 1), max(stop - start + 1, 2)


def _mass_beyond(losses: Sequence[TiltedLoss], rate: float, index: int) -> float:
    """Chernoff's bound on the composed tilted mass above an index, at the rate or, where that fails, lower ones."""
    if index >= sum(loss.count * (loss.first + loss.masses.size - 1) for loss in losses):
        return 0.0
    centre = sum(loss.count * loss.mean for loss in losses)
    best = 0.0
    for lower_rate in rate * _RATE_SHARES:
        log_moment = sum(loss.log_central_moment(lower_rate) for loss in losses)
        best = min(best, log_moment - lower_rate * (index - centre))
        if best < _NEGLIGIBLE_LOG_MASS:
            break
    return math.exp(best)


def _convolve(losses: Sequence[TiltedLoss], start: int, length: int) -> tuple[FloatArray, float]:
    """The composed masses on the window, and a bound on the rounding error of each.

    Mass outside the window wraps around into it, which only adds. Each loss is shifted by its mean first, so that the
    phases which are multiplied by ``count`` stay small where the spectrum is not negligible.
    """
    size = fft.next_fast_len(length, real=True)
    roundoff = 4 * float(np.finfo(np.float64).eps) * math.log2(size + 1)
    log_magnitude, phase, relative_error = np.zeros((3, size // 2 + 1))
    offset = 0
    for loss in losses:
        middle = round(loss.mean) - loss.first
        positions = (np.arange(loss.masses.size) - middle) % size
        spectrum = fft.rfft(np.bincount(positions, weights=loss.masses, minlength=size))
        magnitude = np.maximum(np.abs(spectrum), 1e-300)
        log_magnitude += loss.count * np.log(magnitude)
        phase += loss.count * np.angle(spectrum)
        relative_error += loss.count * roundoff / magnitude
        offset += loss.count * (loss.first + middle)
    kept = log_magnitude > _NEGLIGIBLE_LOG_MAGNITUDE
    power = np.zeros(size // 2 + 1, dtype=np.complex128)
    power[kept] = np.exp(log_magnitude[kept] + 1j * phase[kept])
    composed = fft.irfft(power, size)
    window = (start - offset + np.arange(length)) % size
    error = (2 / size) * float(np.sum(np.abs(power[kept]) * (relative_error[kept] + roundoff))) + math.exp(
        _NEGLIGIBLE_LOG_MAGNITUDE
    )
    return np.maximum(composed[window], 0.0), error


def compose(losses: Sequence[TiltedLoss], window: Window, spacing: float, infinity_mass: float) -> TailProfile:
    """Composes losses with the window's tilt on one ``spacing`` into a certified profile."""
    start, length = _place(losses, window, spacing)
    masses, rounding = _convolve(losses, start, length)
    return TailProfile(
        losses=spacing * (start + np.arange(length, dtype=np.float64)),
        masses=masses,
        order=window.order,
        log_moment=sum(loss.count * loss.log_moment for loss in losses),
        left_out=_TRIMMED + _mass_beyond(losses, window.rate * spacing, start + length - 1),
        rounding=rounding,
        infinity_mass=infinity_mass,
    )
