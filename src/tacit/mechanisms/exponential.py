"""The exponential mechanism."""

from fractions import Fraction

import numpy as np

from tacit.mechanisms.integer_noise import RandomBits, exponential_coin
from tacit.mechanisms.selection import Losses, Selection


class Exponential(Selection):
    r"""Chooses candidate i with probability proportional to :math:`e^{-c \ell_i}`.

    Guarantee: with losses :math:`\ell_i' = \ell_i + \Delta_i` on the neighbour,

    .. math:: \frac{P[i]}{P'[i]} = e^{c \Delta_i} \frac{\sum_j e^{-c \ell_j'}}{\sum_j e^{-c \ell_j}}
              \le e^{c \Delta_i} e^{-c \min_j \Delta_j} \le e^{cs},

    since each term of the upper sum is :math:`e^{-c\Delta_j}` times one of the lower.

    The sampler is exact: a candidate drawn evenly is kept with probability :math:`e^{-c(\ell_i - \min \ell)}`, by coins
    from integers alone, until one is kept. That takes as many tries on average as there are candidates, at most.

    Reference: McSherry, Talwar, Mechanism Design via Differential Privacy, 2007; the spread is that of Dong, Durfee,
    Rogers, Optimal Differential Privacy Composition for Exponential Mechanisms, 2020.
    """

    def _choose(self, excess: Losses, stream: np.random.Generator) -> int:
        rate, bits = Fraction(self.rate), RandomBits(stream)
        while True:
            place = bits.below(len(excess))
            if exponential_coin(rate.numerator * int(excess[place]), rate.denominator, bits):
                return place
