r"""Gaussian noise on moments.

**Sensitivity**, for a row z with its intercept, :math:`\|z\| \le R` and entries of at most m:

- the entries :math:`z_i z_j` with :math:`i \le j`: :math:`\sum_{i \le j} z_i^2 z_j^2 = (\|z\|^4 + \sum_i z_i^4) / 2 \le
  (R^4 + \min(R^4, m^2 R^2)) / 2`. For features in [-1, 1] that is attained at a corner, and :math:`\sqrt{p(p+1)/2}`.
- the entries :math:`y z_i`: :math:`|y|\,\|z\| \le R`.

All are whole numbers of the grid, and sensitivities are rounded up to it.
"""

import math

import numpy as np

from tacit.linear.guarantee import Guarantee, Spending
from tacit.linear.moments import UNIT
from tacit.linear.problem import Problem
from tacit.linear.rows import Floats, Integers
from tacit.mechanisms import RoundedGaussian


def gram_sensitivity(problem: Problem) -> float:
    """Of the second moments, L2, in the units of z."""
    squared = problem.row_l2**2
    return math.sqrt((squared**2 + min(squared**2, max(1.0, problem.largest) ** 2 * squared)) / 2)


def noised_by(sensitivity: float, guarantee: Guarantee, share: float) -> RoundedGaussian:
    """Gaussian noise with this share of the guarantee, for a sensitivity in the units of z."""
    bound = math.ceil(sensitivity * UNIT)
    return RoundedGaussian(guarantee.noise_multiplier(share) * bound, bound)


def gram_mechanism(problem: Problem, guarantee: Guarantee, share: float) -> RoundedGaussian:
    """For `release_gram`."""
    return noised_by(gram_sensitivity(problem), guarantee, share)


def cross_mechanism(problem: Problem, guarantee: Guarantee, share: float) -> RoundedGaussian:
    """For the sum of y z."""
    return noised_by(problem.row_l2, guarantee, share)


def release_gram(gram: Integers, spending: Spending) -> Floats:
    """The symmetric matrix in the units of z, with noise on each entry of its upper triangle."""
    upper = np.triu_indices(len(gram))
    noised = np.zeros(gram.shape)
    noised[upper] = spending.release(gram[upper]) / UNIT
    return noised + np.triu(noised, 1).T


def scale_of(mechanism: RoundedGaussian) -> float:
    """Its standard deviation in the units of z."""
    return float(mechanism.scale) / UNIT
