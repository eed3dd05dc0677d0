"""Exact samplers of how many trials a private selection makes, and of which candidate each of them tries.

Coins of rational probability only: a float stands for the fraction that it is exactly, so that the distributions are
those of `tacit.accounting.selection`'s formulas, given uniform bits. The number must come from
`tacit.core.randomness`, as noise does: whoever can guess it knows more than the guarantee covers.
"""

import math
from fractions import Fraction

import numpy as np

from tacit.accounting.selection import Poisson, TrialCount, TruncatedNegativeBinomial
from tacit.core.validation import check_count
from tacit.mechanisms.integer_noise import RandomBits


def draw_trial_count(trials: TrialCount, stream: np.random.Generator) -> int:
    """One K. It is secret: a selection's guarantee covers neither K nor anything that tells it."""
    bits = RandomBits(stream)
    if isinstance(trials, Poisson):
        return _poisson(Fraction(trials.mean), bits)
    return _truncated_negative_binomial(trials, bits)


def draw_candidate(candidates: int, stream: np.random.Generator) -> int:
    """A uniform choice among the numbers below ``candidates``."""
    return RandomBits(stream).below(check_count("candidates", candidates))


def _truncated_negative_binomial(trials: TruncatedNegativeBinomial, bits: RandomBits) -> int:
    shape, gamma = Fraction(trials.shape), Fraction(trials.gamma)
    if gamma == 1:
        return 1
    if shape <= 1:
        return _tilted_geometric(1, shape, gamma, bits)
    # A negative binomial of shape eta is a sum of independent ones whose shapes add up to eta.
    parts = math.ceil(shape)
    while True:
        total = sum(_tilted_geometric(0, shape / parts, gamma, bits) for _ in range(parts))
        if total:
            return total


def _tilted_geometric(first: int, shape: Fraction, gamma: Fraction, bits: RandomBits) -> int:
    r"""k from ``first`` on with probability proportional to :math:`(1-\gamma)^k \prod_{l=first}^{k-1} (l+\eta)/(l+1)`.

    By rejection from the geometric distribution, for shapes up to 1, so that each factor is a probability. All coins of
    a proposal are independent, so it is given up at the first that fails.
    """
    k = first
    while not _coin(gamma, bits):
        if _coin((k + shape) / (k + 1), bits):
            k += 1
        else:
            k = first
    return k


def _poisson(mean: Fraction, bits: RandomBits) -> int:
    r"""A sum of Poisson numbers of means x up to 1/2, each by rejection from :math:`2^{-k-1}`.

    :math:`x^k / k! = 2^{-k} \prod_{j=1}^{k} 2x/j`, and each factor is a probability.
    """
    parts = math.ceil(2 * mean)
    return sum(_small_poisson(mean / parts, bits) for _ in range(parts))


def _small_poisson(mean: Fraction, bits: RandomBits) -> int:
    k = 0
    while _coin(Fraction(1, 2), bits):
        k = k + 1 if _coin(2 * mean / (k + 1), bits) else 0
    return k


def _coin(probability: Fraction, bits: RandomBits) -> bool:
    return bits.coin(probability.numerator, probability.denominator)
