"""Report noisy max."""

from fractions import Fraction

import numpy as np

from tacit.mechanisms.integer_noise import RandomBits, exponential_coin
from tacit.mechanisms.selection import Losses, Selection


class NoisyMax(Selection):
    r"""Reports the candidate whose :math:`\eta_i - \ell_i` is largest, with independent :math:`\eta_i` of density
    :math:`c e^{-c\eta}` on :math:`\eta \ge 0`.

    Guarantee: fix the noise of all candidates but i, and let :math:`t = \max_{j \ne i} (\eta_j - \ell_j)`. Then i is
    reported with probability :math:`P[\eta_i \ge t + \ell_i] = \min(1, e^{-c(t + \ell_i)})`. On the neighbour
    :math:`\ell_i` has grown by :math:`\Delta_i` and :math:`t` by no less than :math:`-\max_j \Delta_j` and no more than
    :math:`-\min_j \Delta_j`, so that :math:`t + \ell_i` differs by at most the spread s, and the probability by a
    factor of at most :math:`e^{cs}`. Averaging over the noise that was fixed keeps the factor.

    No noise needs to be drawn. The choice has the law of **permute and flip**: take the candidates in a random order
    and report the first whose coin of probability :math:`e^{-c(\ell_i - \min \ell)}` shows heads. Coins come from
    integers alone, ties need no rule, and the best candidate always shows heads, so that it ends. Its expected loss is
    never above that of the exponential mechanism.

    Reference: McKenna, Sheldon, Permute-and-Flip, 2020, https://arxiv.org/abs/2010.12603; Ding, Kifer, Steinke, Wang,
    Xiao, Zhang, The Permute-and-Flip Mechanism is Identical to Report-Noisy-Max with Exponential Noise, 2021,
    https://arxiv.org/abs/2105.07260.
    """

    def _choose(self, excess: Losses, stream: np.random.Generator) -> int:
        rate, bits = Fraction(self.rate), RandomBits(stream)
        left = list(range(len(excess)))
        while True:
            drawn = bits.below(len(left))
            place = left[drawn]
            if exponential_coin(rate.numerator * int(excess[place]), rate.denominator, bits):
                return place
            left[drawn] = left[-1]
            left.pop()
