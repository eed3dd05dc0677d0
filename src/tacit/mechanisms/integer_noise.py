"""Exact samplers of the discrete Laplace and the discrete Gaussian distribution.

Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy, 2020,
https://arxiv.org/abs/2004.00010, algorithms 1 to 3. Integers and random bits only: no floating-point number
enters, so that the distributions are those of the formulas and not of their roundings, given uniform bits.
"""

import math
from fractions import Fraction

import numpy as np

_POOL_BYTES = 512


class RandomBits:
    """Uniform integers and coins from a stream's bits, fetched in pools; each bit is used once."""

    def __init__(self, stream: np.random.Generator) -> None:
        self._stream = stream
        self._pool = 0
        self._left = 0

    def below(self, bound: int) -> int:
        """A uniform integer in 0 ... bound - 1, by rejection."""
        width = (bound - 1).bit_length()
        while True:
            drawn = self._take(width)
            if drawn < bound:
                return drawn

    def coin(self, numerator: int, denominator: int) -> bool:
        """True with probability numerator / denominator."""
        return self.below(denominator) < numerator

    def _take(self, width: int) -> int:
        if self._left < width:
            count = max(_POOL_BYTES, (width + 7) // 8)
            self._pool = int.from_bytes(self._stream.bytes(count), "little")
            self._left = 8 * count
        drawn = self._pool & ((1 << width) - 1)
        self._pool >>= width
        self._left -= width
        return drawn


def exponential_coin(numerator: int, denominator: int, bits: RandomBits) -> bool:
    """True with probability exp(-numerator / denominator), for a quotient of at least 0 (algorithm 1)."""
    whole, numerator = divmod(numerator, denominator)
    return all(_exponential_coin_below_one(1, 1, bits) for _ in range(whole)) and _exponential_coin_below_one(
        numerator, denominator, bits
    )


def _exponential_coin_below_one(numerator: int, denominator: int, bits: RandomBits) -> bool:
    """For x = numerator / denominator in [0, 1]: the first K with a failed coin of probability x / K is odd.

    P[K > k] = x^k / k!, so P[K odd] = 1 - x + x^2/2! - ... = exp(-x).
    """
    k = 1
    while bits.coin(numerator, denominator * k):
        k += 1
    return k % 2 == 1


def discrete_laplace(scale: Fraction, bits: RandomBits) -> int:
    """One integer y with probability proportional to exp(-|y| / scale) (algorithm 2).

    With scale = t / s, the number U + t V is geometric with ratio exp(-1 / t) and its floor division by s
    geometric with ratio exp(-s / t); a sign is added, and one of the two zeros is rejected.
    """
    t, s = scale.numerator, scale.denominator
    while True:
        u = bits.below(t)
        if not exponential_coin(u, t, bits):
            continue
        v = 0
        while exponential_coin(1, 1, bits):
            v += 1
        magnitude = (u + t * v) // s
        negative = bits.coin(1, 2)
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def discrete_gaussian(variance: Fraction, bits: RandomBits) -> int:
    """One integer y with probability proportional to exp(-y^2 / (2 variance)) (algorithm 3).

    A discrete Laplace draw of scale t = floor(sqrt(variance)) + 1 is kept with probability
    exp(-(|y| - variance / t)^2 / (2 variance)).
    """
    t = math.isqrt(variance.numerator // variance.denominator) + 1
    scale = Fraction(t)
    # With variance = a / b: (|y| - a / (b t))^2 / (2 a / b) = (|y| b t - a)^2 / (2 a b t^2).
    a, b = variance.numerator, variance.denominator
    while True:
        y = discrete_laplace(scale, bits)
        if exponential_coin((abs(y) * b * t - a) ** 2, 2 * a * b * t * t, bits):
            return y
