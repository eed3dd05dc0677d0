r"""Moments of the likelihood ratio of the Poisson-sampled Gaussian mechanism.

With :math:`\mu_0 = N(0, \sigma^2)` and :math:`\mu = (1-q)\,\mu_0 + q\,N(1, \sigma^2)` these are
:math:`\log E_{z\sim\mu_0}[(\mu(z)/\mu_0(z))^p]`: by quadrature for any real p, and by the binomial theorem for whole
ones,

.. math:: \log \sum_{k=0}^{p} \binom{p}{k} (1-q)^{p-k} q^k e^{k(k-1)/(2\sigma^2)}.
"""

import functools
import math

import numpy as np
from scipy import special

from tacit.accounting.dominating import FloatArray

_DEVIATIONS = 14.0
_MOST_POINTS = 200_000
_NEAR_ONE = 0.01
_LARGEST_EXPONENT = 600.0


def log_ratio_moments(powers: FloatArray, sampling_rate: float, noise_multiplier: float) -> FloatArray:
    r"""The log moments at each real power, by the trapezium rule.

    The integrand falls like a Gaussian and is analytic in a strip of half-width :math:`\pi\sigma^2` around the real
    line, for which the rule converges exponentially in 1/spacing; the spacing here leaves rounding only. Its weight
    lies within a few deviations of the interval between 0 and the power. A noise so small that this takes too many
    points gives infinity, which is an upper bound.

    A moment near 1 is computed as its excess over 1, from which the ratio's mean of 1 is taken out under the integral:
    a rare sample moves the moment by the square of the sampling rate, far below the rounding of 1.
    """
    variance = noise_multiplier**2
    spacing = min(noise_multiplier / 5, variance / 6)
    reach = _DEVIATIONS * noise_multiplier
    lowest, highest = min(0.0, float(powers.min())) - reach, max(0.0, float(powers.max())) + reach
    if highest - lowest > _MOST_POINTS * spacing:
        return np.full(powers.shape, np.inf)
    z: FloatArray = spacing * np.arange(math.floor(lowest / spacing), math.ceil(highest / spacing) + 1.0)
    log_weights = -(z**2) / (2 * variance) + math.log(spacing / (noise_multiplier * math.sqrt(2 * math.pi)))
    exponents = (2 * z - 1) / (2 * variance)
    with np.errstate(divide="ignore"):
        log_rest = np.log1p(-sampling_rate)
    log_ratios = np.logaddexp(log_rest, math.log(sampling_rate) + exponents)
    products = np.multiply.outer(powers, log_ratios)
    top = (products + log_weights).max(axis=1)
    moments = top + np.log(np.exp(products + log_weights - top[:, None]).sum(axis=1))
    near_one = np.abs(moments) < _NEAR_ONE
    if near_one.any():
        moments[near_one] = _log_excess(powers[near_one], exponents, log_weights, sampling_rate)
    return np.asarray(moments)


def _log_excess(powers: FloatArray, exponents: FloatArray, log_weights: FloatArray, rate: float) -> FloatArray:
    """log(1 + E[r^p - 1 - p (r - 1)]) for ratios r = 1 + q (e^y - 1), where the expectation is small."""
    shifted = rate * np.expm1(np.minimum(exponents, _LARGEST_EXPONENT))
    weights, p = np.exp(log_weights), powers[:, None]
    products = p * np.log1p(shifted)
    near = weights * (np.expm1(np.minimum(products, 1.0)) - p * shifted)
    far = (
        np.exp(np.minimum(products + log_weights, 0.0))
        - weights
        - p * rate * (np.exp(exponents + log_weights) - weights)
    )
    return np.asarray(np.log1p(np.where(np.abs(products) < 0.5, near, far).sum(axis=1)))


def log_binomial_moment(power: int, sampling_rate: float, noise_multiplier: float) -> float:
    """The log moment at a whole power of at least 2, in closed form; 0 < rate < 1.

    The binomial weights add up to 1, so the moment's excess over 1 is the sum with e^(k(k-1)/(2 s^2)) - 1 in place of
    the exponential. Its terms are positive from k = 2 on, so that nothing cancels however small the rate is.
    """
    k = np.arange(2.0, power + 1)
    exponents = k * (k - 1) / (2 * noise_multiplier**2)
    log_terms = (
        _log_binomials(power)
        + k * math.log(sampling_rate)
        + (power - k) * math.log1p(-sampling_rate)
        + exponents
        + np.log(-np.expm1(-exponents))
    )
    top = float(log_terms.max())
    return float(np.logaddexp(0.0, top + math.log(float(np.exp(log_terms - top).sum()))))


@functools.lru_cache(maxsize=256)
def _log_binomials(power: int) -> FloatArray:
    """log C(power, k) for k = 2, ..., power."""
    k = np.arange(2.0, power + 1)
    return np.asarray(special.gammaln(power + 1) - special.gammaln(k + 1) - special.gammaln(power - k + 1))
