r"""Coefficients from noised moments: a Bayes rule in the place of an inverse that noise has spoilt.

Released are :math:`\hat A = A + E` and :math:`\hat b = b + e` for :math:`A = \sum z z^\top`, :math:`b = \sum y z`. For
the least-squares coefficients :math:`\theta`, with :math:`A\theta = b`,

.. math:: \hat b = \hat A \theta + (e - E\theta),

a linear model with known matrix and noise of mean 0 and variance :math:`V` on each coordinate. With
:math:`\theta \sim N(0, \tau^2 I)` its posterior mean has, in the eigenbasis of :math:`\hat A`, the filter
:math:`w / (w^2 + V / \tau^2)` where ordinary inversion has :math:`1 / w`. Where the noise is small the two agree; a
direction that noise drowned is left alone. Eigenvalues below 0, which no sum of squares has, are set to 0 first: the
nearest positive semidefinite form.

The prior is public and the same for all tables: targets fill [-1, 1] (mean and spread unknown, each of variance 1/3),
half of the spread is explained, and features are spread evenly over [-1, 1].
"""

import dataclasses

import numpy as np

from tacit.linear.rows import Floats

_MEAN_SQUARE = 1 / 3  # of the intercept
_SLOPES_SQUARE = 1 / 2  # of all slopes together: 1/6 of explained variance over features of variance 1/3
NORM_SQUARE = _MEAN_SQUARE + _SLOPES_SQUARE
FEATURE_VARIANCE = 1 / 3
_ROUNDS = 60


@dataclasses.dataclass(frozen=True)
class MomentNoise:
    """Standard deviations of the noise on the moments, in the units of z.

    Attributes:
        diagonal, off_diagonal: on the entries of A; the matrix stays symmetric.
        cross: on the entries of b.
    """

    diagonal: float
    off_diagonal: float
    cross: float

    def on_matrix(self, size: int) -> float:
        r"""The variance of a coordinate of :math:`E\theta` for :math:`\|\theta\| = 1`, on average."""
        return (self.diagonal**2 + (size - 1) * self.off_diagonal**2) / size

    def variance(self, size: int, examples: int | None = None) -> float:
        r"""V under the prior.

        With the number of rows it is the solution of :math:`V = \sigma_b^2 + \sigma_A^2\, E\|\hat\theta\|^2`: the
        matrix's noise acts on coefficients that are themselves shrunk by V, which matters where noise is large.
        """
        full = self.cross**2 + self.on_matrix(size) * NORM_SQUARE
        if examples is None:
            return full
        signal = _signal(size, examples)
        found = self.cross**2
        for _ in range(_ROUNDS):  # a contraction: the right side falls as V grows
            kept = NORM_SQUARE / size * float(np.sum(signal / (signal + found)))
            found = (found + self.cross**2 + self.on_matrix(size) * kept) / 2
        return found


def expected_excess(noise: MomentNoise, size: int, examples: int) -> float:
    r"""The mean loss above the best that the prior expects: :math:`\frac1n \sum_i \lambda_i \tau^2 V /
    (\tau^2\lambda_i^2 + V)`, with the eigenvalues :math:`\lambda` of n evenly spread rows.
    """
    variance, signal = noise.variance(size, examples), _signal(size, examples)
    prior = NORM_SQUARE / size
    left = prior * variance / (signal + variance)
    return float(np.sum(_eigenvalues(size, examples) * left)) / examples


def shrunk_solution(gram: Floats, cross: Floats, noise: MomentNoise) -> Floats:
    """The posterior mean of the coefficients; see the module."""
    size = len(cross)
    values, vectors = np.linalg.eigh(gram)
    kept = np.maximum(values, 0.0)
    weights = kept / (kept**2 + noise.variance(size) * size / NORM_SQUARE)
    solution: Floats = vectors @ (weights * (vectors.T @ cross))
    return solution


def _eigenvalues(size: int, examples: int) -> Floats:
    values = np.full(size, examples * FEATURE_VARIANCE)
    values[0] = examples
    return values


def _signal(size: int, examples: int) -> Floats:
    signal: Floats = NORM_SQUARE / size * _eigenvalues(size, examples) ** 2
    return signal
