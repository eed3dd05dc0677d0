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
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import fft

from tacit.accounting.discretisation import LossDistribution
from tacit.accounting.dominating import FloatArray
from tacit.accounting.tail_profile import Spectrum, TailProfile, transform_size

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


def _convolve(losses: Sequence[TiltedLoss], start: int, length: int) -> tuple[Spectrum, float]:
    """The spectrum of the composed masses from ``start`` on, and a bound on the rounding error of each mass.

    Mass outside the window wraps around into it, which only adds. Each loss is shifted by its mean first, so that the
    phases which are multiplied by ``count`` stay small where the spectrum is not negligible. No factor is above 1, so
    a frequency that is negligible in one of them is so in the product, and logarithms are taken of the others only.
    """
    size = transform_size(length)
    roundoff = 4 * float(np.finfo(np.float64).eps) * math.log2(size + 1)
    kept = np.arange(size // 2 + 1)
    log_magnitude, phase, relative_error = np.zeros((3, kept.size))
    offset = 0
    for loss in losses:
        middle = round(loss.mean) - loss.first
        spectrum = _spectrum_around(loss.masses, middle, size)[kept]
        squared = spectrum.real**2 + spectrum.imag**2
        alive = squared > math.exp(2 * _NEGLIGIBLE_LOG_MAGNITUDE / loss.count)
        kept, spectrum, squared = kept[alive], spectrum[alive], squared[alive]
        log_magnitude = log_magnitude[alive] + (loss.count / 2) * np.log(squared)
        phase = phase[alive] + loss.count * np.angle(spectrum)
        relative_error = relative_error[alive] + loss.count * roundoff / np.sqrt(squared)
        offset += loss.count * (loss.first + middle)
    magnitude = np.exp(log_magnitude)
    error = (2 / size) * float(magnitude @ (relative_error + 2 * roundoff)) + math.exp(_NEGLIGIBLE_LOG_MAGNITUDE)
    turns = kept * ((start - offset) % size) % size
    values = magnitude * np.exp(1j * (phase + 2 * math.pi / size * turns))
    return Spectrum(size, kept, values), error


def _spectrum_around(masses: FloatArray, middle: int, size: int) -> npt.NDArray[np.complex128]:
    """The transform of masses whose ``middle`` one lies at 0; what does not fit into ``size`` wraps around."""
    if masses.size > size:
        masses = np.asarray(np.bincount(np.arange(masses.size) % size, weights=masses), dtype=np.float64)
        middle %= size
    wrapped = np.zeros(size)
    wrapped[: masses.size - middle] = masses[middle:]
    wrapped[size - middle :] += masses[:middle]
    return np.asarray(fft.rfft(wrapped))


def compose(losses: Sequence[TiltedLoss], window: Window, spacing: float, infinity_mass: float) -> TailProfile:
    """Composes losses with the window's tilt on one ``spacing`` into a certified profile."""
    start, length = _place(losses, window, spacing)
    spectrum, rounding = _convolve(losses, start, length)
    return TailProfile(
        spectrum=spectrum,
        first=start,
        length=length,
        spacing=spacing,
        order=window.order,
        log_moment=sum(loss.count * loss.log_moment for loss in losses),
        left_out=_TRIMMED + _mass_beyond(losses, window.rate * spacing, start + length - 1),
        rounding=rounding,
        infinity_mass=infinity_mass,
    )
