r"""Moments of the likelihood ratio of the Poisson-sampled Gaussian mechanism.

With :math:`\mu_0 = N(0, \sigma^2)` and :math:`\mu = (1-q)\,\mu_0 + q\,N(1, \sigma^2)` these are
:math:`\log E_{z\sim\mu_0}[(\mu(z)/\mu_0(z))^p]`: by quadrature for any real p, and by the binomial theorem for whole
ones,

.. math:: \log \sum_{k=0}^{p} \binom{p}{k} (1-q)^{p-k} q^k e^{k(k-1)/(2\sigma^2)}.
"""

import math

import numpy as np
from scipy import special

from tacit.accounting.dominating import FloatArray

_DEVIATIONS = 14.0
_MOST_POINTS = 200_000


def log_ratio_moments(powers: FloatArray, sampling_rate: float, noise_multiplier: float) -> FloatArray:
    r"""The log moments at each real power, by the trapezium rule.

    The integrand falls like a Gaussian and is analytic in a strip of half-width :math:`\pi\sigma^2` around the real
    line, for which the rule converges exponentially in 1/spacing; the spacing here leaves rounding only. Its weight
    lies within a few deviations of the interval between 0 and the power. A noise so small that this takes too many
    points gives infinity, which is an upper bound.
    """
    variance = noise_multiplier**2
    spacing = min(noise_multiplier / 5, variance / 6)
    reach = _DEVIATIONS * noise_multiplier
    lowest, highest = min(0.0, float(powers.min())) - reach, max(0.0, float(powers.max())) + reach
    if highest - lowest > _MOST_POINTS * spacing:
        return np.full(powers.shape, np.inf)
    z = np.arange(math.floor(lowest / spacing), math.ceil(highest / spacing) + 1) * spacing
    log_gaussian = -(z**2) / (2 * variance) + math.log(spacing / (noise_multiplier * math.sqrt(2 * math.pi)))
    with np.errstate(divide="ignore"):
        log_rest = np.log1p(-sampling_rate)
    log_ratio = np.logaddexp(log_rest, math.log(sampling_rate) + (2 * z - 1) / (2 * variance))
    exponents = np.multiply.outer(powers, log_ratio) + log_gaussian
    top = exponents.max(axis=1)
    return np.asarray(top + np.log(np.exp(exponents - top[:, None]).sum(axis=1)))


def log_binomial_moment(power: int, sampling_rate: float, noise_multiplier: float) -> float:
    """The log moment at a whole power of at least 1, in closed form; 0 < rate < 1."""
    k = np.arange(power + 1.0)
    log_terms = (
        special.gammaln(power + 1)
        - special.gammaln(k + 1)
        - special.gammaln(power - k + 1)
        + k * math.log(sampling_rate)
        + (power - k) * math.log1p(-sampling_rate)
        + k * (k - 1) / (2 * noise_multiplier**2)
    )
    return float(special.logsumexp(log_terms))
