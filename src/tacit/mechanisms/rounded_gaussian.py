"""Integers with Gaussian noise that is rounded, drawn exactly."""

import dataclasses
import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from tacit.core.validation import check_count, check_positive
from tacit.mechanisms.discrete import IntegerMechanism
from tacit.mechanisms.integer_noise import RandomBits, discrete_gaussian

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_BITS_AT_A_TIME = 64


@dataclasses.dataclass(frozen=True)
class RoundedGaussian(IntegerMechanism):
    r"""Adds :math:`\mathrm{round}(z)` to every integer v, for real :math:`z \sim N(0, \sigma^2)`.

    As v is an integer, :math:`v + \mathrm{round}(z) = \mathrm{round}(v + z)`: what is released is a function of the
    real Gaussian mechanism's answer, and has every guarantee that this has, in any number of coordinates and under any
    composition. So the analytic calibration of Balle and Wang (2018) and all accountants of the Gaussian mechanism
    hold for it as they stand, with no term for the grid. (The discrete Gaussian has a curve of its own, which lies
    above the real one's at some epsilons; its zCDP bound, which composes, costs a few percent more noise.)

    The noise has variance :math:`\sigma^2 + 1/12`, all but exactly so from :math:`\sigma = 1` on.

    The sampler is exact, see `rounded_gaussian`: no floating-point number enters, and a tie has probability 0.

    Args:
        scale: :math:`\sigma`. A float stands for the fraction that it is exactly.
        sensitivity: how far one record's contribution moves the integers at most, in L2 norm: the distance under
            add-remove and zero-out. A replaced record moves them twice as far, which accountants know.
    """

    scale: float | Fraction
    sensitivity: float | Fraction

    def __post_init__(self) -> None:
        check_positive("scale", float(self.scale), remedy="Without noise there is no privacy.")
        check_positive("sensitivity", float(self.sensitivity))

    def event(self) -> "DpEvent":
        """A Gaussian event; its multiplier is rounded down where it is no float."""
        from dp_accounting import dp_event

        exact = Fraction(self.scale) / Fraction(self.sensitivity)
        nearest = float(exact)
        return dp_event.GaussianDpEvent(nearest if nearest <= exact else math.nextafter(nearest, 0.0))

    def draw(self, count: int, stream: np.random.Generator) -> list[int]:
        """``count`` independent integers of noise."""
        check_count("count", count, minimum=0)
        variance, bits = Fraction(self.scale) ** 2, RandomBits(stream)
        return [rounded_gaussian(variance, bits) for _ in range(count)]


def rounded_gaussian(variance: Fraction, bits: RandomBits) -> int:
    r"""One real number from N(0, variance), rounded to the nearest integer.

    Its magnitude is k + x with a whole k and x in [0, 1), of density proportional to
    :math:`e^{-k^2 / 2\sigma^2}\, e^{-x(2k + x) / 2\sigma^2}`. So k is a discrete Gaussian that is not negative, x is
    uniform, and both are kept with probability :math:`e^{-x(2k + x) / 2\sigma^2}` (Karney 2016, *Sampling exactly from
    the normal distribution*, https://arxiv.org/abs/1303.6257, with a whole part on the scale of the result).
    """
    while True:
        whole = discrete_gaussian(variance, bits)
        if whole < 0:
            continue
        rest = _Uniform(bits)
        if _keep(whole, rest, variance, bits):
            magnitude = whole + rest.is_upper_half
            return -magnitude if bits.coin(1, 2) else magnitude


def _keep(whole: int, rest: "_Uniform", variance: Fraction, bits: RandomBits) -> bool:
    """True with probability exp(-x (2k + x) / (2 variance)), for the real x behind ``rest``.

    The exponent is cut into equal parts of at most 1, and each is the chance that the first failed coin of probability
    part / 1, part / 2, ... has an odd number.
    """
    parts = math.ceil((2 * whole + 1) / (2 * variance))
    for _ in range(parts):
        number = 1
        while _is_below(_Uniform(bits), rest, whole, 2 * variance * parts * number):
            number += 1
        if number % 2 == 0:
            return False
    return True


def _is_below(drawn: "_Uniform", rest: "_Uniform", whole: int, divisor: Fraction) -> bool:
    """Whether u < x (2k + x) / divisor for two real numbers u and x, with as many bits of both as it takes.

    With u from b / 2^v to (b + 1) / 2^v and x from a / 2^w to (a + 1) / 2^w, both sides are whole numbers once
    multiplied by 2^(v + 2w) and the divisor's numerator and denominator.
    """
    while True:
        width = rest.width
        below, above = (known * ((2 * whole << width) + known) for known in (rest.known, rest.known + 1))
        shift, scale = drawn.width, divisor.denominator
        if (drawn.known + 1) * divisor.numerator << 2 * width <= below * scale << shift:
            return True
        if drawn.known * divisor.numerator << 2 * width >= above * scale << shift:
            return False
        drawn.refine()
        rest.refine()


class _Uniform:
    """A real number that is uniform in [0, 1), known to be at least ``known`` / 2^``width``, by less than one more."""

    def __init__(self, bits: RandomBits) -> None:
        self._bits, self.known, self.width = bits, 0, 0
        self.refine()

    def refine(self) -> None:
        """Some more bits."""
        self.known = (self.known << _BITS_AT_A_TIME) | self._bits.below(1 << _BITS_AT_A_TIME)
        self.width += _BITS_AT_A_TIME

    @property
    def is_upper_half(self) -> bool:
        """The first bit."""
        return bool(self.known >> (self.width - 1))
