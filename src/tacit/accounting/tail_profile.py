r"""Delta over epsilon from the spectrum of a tilted, composed loss, without its masses where few frequencies count.

A composition of many steps is smooth: all but a few low frequencies of its spectrum vanish. With tilted masses
:math:`m_j = \frac1N \sum_k \hat m_k e^{2\pi i k j/N}` on losses of spacing h, the sums that delta is made of are
geometric,

.. math:: \sum_{u \ge 0} m_{j+u} e^{-t h u}
          = \frac1N \sum_k \frac{\hat m_k e^{2\pi i k j/N}}{1 - e^{-t h + 2\pi i k/N}},

so that each costs one term a frequency, and a transform as short as the frequencies allow gives them at every D-th
loss. What lies beyond the window, where the periodic masses start again, is taken off the same way.
"""

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import fft

from tacit.accounting.dominating import FloatArray

_LONGEST_STRIDE = 64
_SHORTEST_STRIDE = 8  # with a shorter one there are so many frequencies that transforms beat sums over them

ComplexArray = npt.NDArray[np.complex128]


def transform_size(length: int) -> int:
    """A fast size of at least ``length`` that every stride divides."""
    stride: int = min(_LONGEST_STRIDE, 1 << max(0, length.bit_length() - 8))
    groups = int(fft.next_fast_len(-(-length // stride), real=True))
    return stride * groups


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """The transform of real masses, at the frequencies where it is not negligible.

    Attributes:
        size: N, the number of masses of one period.
        frequencies: increasing k in 0..N/2.
        values: the transform there, with the phase that puts the first mass of the window at 0.
    """

    size: int
    frequencies: npt.NDArray[np.int64]
    values: ComplexArray

    @functools.cached_property
    def stride(self) -> int:
        """The largest D in 8, 16, … such that every D-th mass still shows all frequencies; 1 where there is none."""
        highest, stride = int(self.frequencies[-1]) if self.frequencies.size else 0, 1
        while stride < _LONGEST_STRIDE and self.size % (2 * stride) == 0 and self.size // (2 * stride) > 2 * highest:
            stride *= 2
        return stride if stride >= _SHORTEST_STRIDE else 1

    @functools.cached_property
    def one_less_root(self) -> ComplexArray:
        """1 - e^(2 pi i k / N), without cancellation."""
        half = math.pi / self.size * self.frequencies
        sine = np.sin(half)
        return np.asarray(2 * sine * (sine - 1j * np.cos(half)))

    @functools.cached_property
    def _weights(self) -> FloatArray:
        """How often each frequency occurs in a whole, two-sided spectrum, over N."""
        single = (self.frequencies == 0) | (2 * self.frequencies == self.size)
        return np.where(single, 1.0, 2.0) / self.size

    def at(self, index: int, factor: ComplexArray) -> float:
        """The mass at ``index`` of the signal whose spectrum is this one times ``factor``."""
        turns = self.frequencies * (index % self.size) % self.size
        terms = self._weights * self.values * factor * np.exp(2j * math.pi / self.size * turns)
        return float(terms.real.sum())  # summed in pairs, so with no more rounding than a transform has

    def every_stride(self, factor: ComplexArray) -> FloatArray:
        """One period of the signal with this spectrum times ``factor``, at every `stride`-th mass."""
        size = self.size // self.stride
        whole = np.zeros(size // 2 + 1, dtype=np.complex128)
        whole[self.frequencies] = self.values * factor
        return np.asarray(fft.irfft(whole, size) / self.stride)


@dataclasses.dataclass(frozen=True)
class TailProfile:
    """An upper bound on delta(epsilon) around the centre of a tilted, composed loss.

    Attributes:
        spectrum: of the tilted masses, at ``first``, ``first`` + 1, … times ``spacing``.
        length: how many losses the window holds.
        order, log_moment: the tilt's order and the cumulant function of the composition there.
        left_out: tilted mass that lies nowhere on the losses.
        rounding: by how much each of the masses may be too small.
        infinity_mass: the chance of an infinite loss, not tilted.
    """

    spectrum: Spectrum
    first: int
    length: int
    spacing: float
    order: float
    log_moment: float
    left_out: float
    rounding: float
    infinity_mass: float

    @functools.cached_property
    def _factors(self) -> tuple[ComplexArray, ComplexArray]:
        """What turns masses into sums over u >= 0 with weights e^(-t u) (1 - e^(-u)), and with e^(-(t + 1) u)."""
        one_less = self.spectrum.one_less_root
        upper, lower = (
            math.exp(-rate * self.spacing) * one_less - math.expm1(-rate * self.spacing)
            for rate in (self.order, self.order + 1)
        )
        between = -math.expm1(-self.spacing) * math.exp(-self.order * self.spacing) * (1 - one_less)
        return between / (upper * lower), 1 / lower

    @functools.cached_property
    def _coarse_sums(self) -> FloatArray:
        """The first of the sums, over one period, at every stride-th loss."""
        return self.spectrum.every_stride(self._factors[0])

    @functools.cached_property
    def _lower_sums(self) -> FloatArray:
        return self.spectrum.every_stride(self._factors[1])

    def _periodic_sums(self, index: int) -> tuple[float, float]:
        """Both sums from the loss at ``index`` on, over all periods."""
        if self.spectrum.stride == 1:
            position = index % self.spectrum.size
            return float(self._coarse_sums[position]), float(self._lower_sums[position])
        return self.spectrum.at(index, self._factors[0]), self.spectrum.at(index, self._factors[1])

    @functools.cached_property
    def _beyond(self) -> tuple[float, float]:
        """Both sums from the window's end on."""
        return self._periodic_sums(self.length)

    def _loss(self, index: int) -> float:
        return self.spacing * (self.first + index)

    def _sums(self, index: int) -> tuple[float, float]:
        """Both sums from the loss at ``index`` to the window's end."""
        difference, lower = self._periodic_sums(index)
        away = self.spacing * (self.length - index)
        shrunk, steeper = math.exp(-self.order * away), math.exp(-away)
        difference -= shrunk * (self._beyond[0] + (1 - steeper) * self._beyond[1])
        return difference, lower - shrunk * steeper * self._beyond[1]

    @functools.cached_property
    def _unresolved(self) -> float:
        """What left-out mass and rounding may add: the largest weight e^(-t y) (1 - e^(-y)) and the sum of all weights.

        The weights rise and fall once, so their sum is at most their integral over the spacing plus the largest.
        """
        heaviest = math.exp(self.order * math.log(self.order / (self.order + 1))) / (self.order + 1)
        all_weights = heaviest + 1 / (self.spacing * self.order * (self.order + 1))
        return self.left_out * heaviest + self.rounding * all_weights

    def delta(self, epsilon: float) -> float:
        """A certified delta at ``epsilon``; 1 where epsilon lies outside the window."""
        index = math.floor(epsilon / self.spacing) + 1 - self.first
        if not 0 < index < self.length:
            return 1.0
        difference, lower = self._sums(index)
        away = max(self._loss(index) - epsilon, 0.0)
        inside = math.exp(-self.order * away) * (difference - math.expm1(-away) * lower)
        log_delta = math.log(max(inside, 0.0) + self._unresolved) + self.log_moment - self.order * epsilon
        return min(1.0, math.exp(min(0.0, log_delta)) + self.infinity_mass)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 whose delta is certified; infinite where the window shows none."""
        if delta <= self.infinity_mass:
            return math.inf
        # In units of exp(log_moment - order x), the unit of the sums at x, this much is allowed at x.
        log_allowed = math.log(delta - self.infinity_mass) - self.log_moment

        def allowed(index: int) -> float:
            return math.exp(min(log_allowed + self.order * self._loss(index), 700.0)) - self._unresolved

        low, high = self._coarse_bracket(log_allowed)
        if high == self.length - 1 and self._sums(high)[0] > allowed(high):
            return math.inf
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._sums(middle)[0] <= allowed(middle) else (middle, high)
        if high == 0:
            return max(0.0, self._loss(0))
        # Epsilon lies between the losses at high - 1 and high, where the sums run from high on; the unresolved part is
        # largest at the former.
        difference, lower = self._sums(high)
        inside = allowed(high) + self._unresolved * -math.expm1(self.order * self.spacing)
        excess = (difference + lower - inside) / lower if lower > 0 else math.inf
        refined = self._loss(high) + math.log(excess) if excess > 0 else -math.inf
        return max(0.0, min(max(refined, self._loss(high - 1)), self._loss(high)))

    def _coarse_bracket(self, log_allowed: float) -> tuple[int, int]:
        """Neighbours among every stride-th loss of which only the second is certified; the last loss where none is."""
        stride = self.spectrum.stride
        indices = np.arange(0, self.length, stride)
        away = self.spacing * (self.length - indices)
        log_limits = log_allowed + self.order * self.spacing * (self.first + indices)
        shrunk = np.exp(-self.order * away)
        beyond = shrunk * (self._beyond[0] - np.expm1(-away) * self._beyond[1])
        sums = self._coarse_sums[: indices.size] - beyond
        certified = np.flatnonzero(sums <= np.exp(np.minimum(log_limits, 700.0)) - self._unresolved)
        if certified.size == 0:
            return int(indices[-1]), self.length - 1
        index = int(indices[certified[0]])
        return max(index - stride, -1 if index == 0 else 0), index
