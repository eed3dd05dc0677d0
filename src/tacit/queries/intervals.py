"""How far noise lies from zero at most, with a given probability."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from tacit.mechanisms.discrete import DiscreteLaplace
from tacit.mechanisms.rounded_gaussian import RoundedGaussian

_APART = 1e-3
_BISECTIONS = 60


def radius(mechanism: DiscreteLaplace | RoundedGaussian, confidence: float) -> int:
    r"""The least whole r with :math:`P[|y| \le r] \ge` ``confidence`` for one integer y of noise.

    :math:`P[|y| > r]` is :math:`2e^{-(r+1)/b} / (1 + e^{-1/b})` for the discrete Laplace, and
    :math:`2\Phi(-(r + 1/2)/\sigma)` for the rounded Gaussian.
    """
    scale, tail = float(mechanism.scale), 1 - confidence
    if isinstance(mechanism, RoundedGaussian):
        real = scale * _normal_radius(tail) - 0.5
    else:
        real = scale * math.log(2 / (tail * (1 + math.exp(-1 / scale)))) - 1
    return max(math.ceil(real), 0)


def combined_radius(mechanism: DiscreteLaplace | RoundedGaussian, weights: Sequence[float], confidence: float) -> float:
    r"""r with :math:`P[|\sum_i w_i y_i| \le r] \ge` ``confidence`` for independent integers of noise on a fine grid.

    The noise is taken as continuous, and half a step on each integer is added for that. A sum of Laplace variables of
    different scales :math:`b_i` has the tail :math:`P[|x| > r] = \sum_i A_i e^{-r/b_i}` with
    :math:`A_i = \prod_{j \ne i} b_i^2 / (b_i^2 - b_j^2)`; scales that lie together are moved apart, upwards.
    """
    scales = np.abs(np.asarray(weights, dtype=np.float64)) * float(mechanism.scale)
    grid = float(np.abs(weights).sum()) / 2
    if isinstance(mechanism, RoundedGaussian):
        return float(np.linalg.norm(scales)) * _normal_radius(1 - confidence) + grid
    return _laplace_radius(_moved_apart(scales), 1 - confidence) + grid


def _moved_apart(scales: np.ndarray) -> np.ndarray:
    """In rising order, each at least a thousandth above the one before; those too small to matter are raised too."""
    ordered = np.sort(scales)
    ordered[0] = max(ordered[0], 1e-2 * ordered[-1])
    for place in range(1, len(ordered)):
        ordered[place] = max(ordered[place], (1 + _APART) * ordered[place - 1])
    return ordered


def _normal_radius(tail: float) -> float:
    return -NormalDist().inv_cdf(tail / 2)


def _laplace_radius(scales: np.ndarray, tail: float) -> float:
    """Where the tail has the given mass, by bisection, rounded up."""
    squares = scales**2
    shares = [np.prod([s / (s - other) for j, other in enumerate(squares) if j != i]) for i, s in enumerate(squares)]
    low, high = 0.0, float(scales.sum()) * (1 + math.log(len(scales) / tail))  # beyond a union bound
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        enough = float(np.sum(shares * np.exp(-middle / scales))) <= tail
        low, high = (low, middle) if enough else (middle, high)
    return high
