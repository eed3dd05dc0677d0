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

_LEFT_OUT = 1e-8  # tilted mass that trimming, and again the window, may leave out; it is added back
_CHERNOFF_RATES = (0.1, 0.25, 0.5, 1.0)  # times the rate that is best for a Gaussian
_NEGLIGIBLE_LOG_MAGNITUDE = -60.0


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

    def log_mass_beyond(self, rate: float) -> float:
        """Logarithm of the moment E[exp(rate (index - mean))], times the count."""
        exponents = rate * (self.indices - self.mean)
        top = float(exponents.max())
        return self.count * (top + math.log(float(self.masses @ np.exp(exponents - top))))


@dataclasses.dataclass(frozen=True)
class TailProfile:
    """An upper bound on delta(epsilon) around the centre of a tilted, composed loss."""

    losses: FloatArray
    masses: FloatArray
    order: float
    log_moment: float
    slack: float
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

    @property
    def _unresolved(self) -> float:
        """What the mass left out may add: its weight is at most max_y e^(-t y) (1 - e^(-y))."""
        return self.slack * math.exp(self.order * math.log(self.order / (self.order + 1))) / (self.order + 1)

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
    """Tilts one step's loss and trims its ends; all steps together lose at most `_LEFT_OUT` of tilted mass."""
    log_moment = float(loss.log_moments(np.asarray([order]))[0])
    with np.errstate(divide="ignore"):
        masses = np.exp(order * loss.losses + np.log(loss.masses) - log_moment)
    allowance = _LEFT_OUT / (2 * total_count)
    heavy = (np.cumsum(masses) > allowance) & (np.cumsum(masses[::-1])[::-1] > allowance)
    start, stop = int(np.argmax(heavy)), masses.size - int(np.argmax(heavy[::-1]))
    return TiltedLoss(first + start, masses[start:stop], count, log_moment)


def _window(losses: Sequence[TiltedLoss]) -> tuple[int, int]:
    """First index and length of a window that holds all but `_LEFT_OUT` of the composed tilted mass."""
    centre = sum(loss.count * loss.mean for loss in losses)
    variance = sum(loss.count * float(loss.masses @ (loss.indices - loss.mean) ** 2) for loss in losses)
    best_rate = math.sqrt(2 * math.log(2 / _LEFT_OUT) / max(variance, 1e-6))
    lowest = centre - sum(loss.count * loss.first for loss in losses)
    highest = sum(loss.count * (loss.first + loss.masses.size - 1) for loss in losses) - centre

    def reach(sign: int) -> float:
        rates = [sign * best_rate * fraction for fraction in _CHERNOFF_RATES]
        return min(
            (sum(loss.log_mass_beyond(rate) for loss in losses) + math.log(2 / _LEFT_OUT)) / abs(rate) for rate in rates
        )

    start = math.floor(centre - min(lowest, reach(-1)))
    stop = math.ceil(centre + min(highest, reach(1)))
    return start, max(stop - start + 1, 2)


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


def compose(losses: Sequence[TiltedLoss], order: float, spacing: float, infinity_mass: float) -> TailProfile:
    """Composes tilted losses of one ``order`` and one ``spacing`` into a certified profile."""
    start, length = _window(losses)
    masses, error = _convolve(losses, start, length)
    return TailProfile(
        losses=spacing * (start + np.arange(length, dtype=np.float64)),
        masses=masses,
        order=order,
        log_moment=sum(loss.count * loss.log_moment for loss in losses),
        slack=2 * _LEFT_OUT + length * error,
        infinity_mass=infinity_mass,
    )
