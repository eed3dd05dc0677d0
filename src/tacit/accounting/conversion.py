r"""From one notion of privacy to another, and from one record to a group.

Notions: pure :math:`\epsilon`-DP, :math:`(\epsilon, \delta)`-DP, :math:`\rho`-zCDP (Bun and Steinke 2016), Rényi DP
(Mironov 2017) and :math:`\mu`-GDP (Dong, Roth and Su 2019: as hard to tell apart as N(0, 1) and N(mu, 1)). Every
function returns a valid guarantee: conversions to a weaker notion are one way.
"""

import math
from collections.abc import Callable

import numpy as np
from dp_accounting import gaussian_mechanism
from scipy import optimize

from tacit.accounting.dominating import FloatArray, gaussian_profile
from tacit.accounting.search import least_within
from tacit.core.errors import InputError
from tacit.core.privacy import Budget
from tacit.core.validation import check_count, check_non_negative, check_open_unit, check_positive

_BISECTIONS = 60


def pure_to_zcdp(epsilon: float) -> float:
    r"""Pure :math:`\epsilon`-DP implies :math:`\rho = \epsilon^2/2` (Bun and Steinke 2016, proposition 1.4)."""
    return check_non_negative("epsilon", epsilon) ** 2 / 2


def pure_to_rdp(epsilon: float, order: float) -> float:
    """The largest Rényi divergence of any pure epsilon-DP mechanism: that of randomised response on one bit."""
    check_non_negative("epsilon", epsilon)
    _check_order(order)
    log_likely, log_unlikely = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    agree = order * log_likely + (1 - order) * log_unlikely
    differ = order * log_unlikely + (1 - order) * log_likely
    return max(0.0, float(np.logaddexp(agree, differ)) / (order - 1))


def zcdp_to_rdp(rho: float, order: float) -> float:
    r""":math:`\rho`-zCDP is, by definition, Rényi DP with :math:`\alpha\rho` at every order :math:`\alpha > 1`."""
    _check_order(order)
    return check_non_negative("rho", rho) * order


def rdp_to_epsilon(order: float, divergence: float, delta: float) -> float:
    r"""Epsilon at ``delta`` from one Rényi divergence (Canonne, Kamath and Steinke 2020, proposition 12):

    .. math:: \epsilon = D_\alpha + \log\frac{\alpha - 1}{\alpha} - \frac{\log(\delta\alpha)}{\alpha - 1}.
    """
    _check_order(order)
    check_non_negative("divergence", divergence)
    check_open_unit("delta", delta)
    return max(0.0, divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1))


def rdp_to_delta(order: float, divergence: float, epsilon: float) -> float:
    """Delta at ``epsilon`` from one Rényi divergence: `rdp_to_epsilon` read the other way."""
    _check_order(order)
    check_non_negative("divergence", divergence)
    check_non_negative("epsilon", epsilon)
    log_delta = (order - 1) * (divergence - epsilon + math.log1p(-1 / order)) - math.log(order)
    return math.exp(min(0.0, log_delta))


def zcdp_to_epsilon(rho: float, delta: float) -> float:
    r"""Epsilon at ``delta`` from :math:`\rho`-zCDP, with the best order of `rdp_to_epsilon`."""
    check_open_unit("delta", delta)
    if check_non_negative("rho", rho) == 0:
        return 0.0
    return _best_order(lambda order: rdp_to_epsilon(order, rho * order, delta), 1 + math.sqrt(-math.log(delta) / rho))


def zcdp_to_delta(rho: float, epsilon: float) -> float:
    r"""Delta at ``epsilon`` from :math:`\rho`-zCDP, with the best order of `rdp_to_delta`."""
    check_non_negative("epsilon", epsilon)
    if check_non_negative("rho", rho) == 0:
        return 0.0
    guess = max(epsilon / rho, 1.0) / 2 + 1
    log_delta = _best_order(
        lambda order: (order - 1) * (rho * order - epsilon + math.log1p(-1 / order)) - math.log(order), guess
    )
    return math.exp(min(0.0, log_delta))


def gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
    """Delta of the Gaussian mechanism, exactly (Balle and Wang 2018, theorem 8). No noise gives 1."""
    check_non_negative("epsilon", epsilon)
    if check_non_negative("noise_multiplier", noise_multiplier) == 0:
        return 1.0
    return float(gaussian_profile(np.asarray([float(epsilon)]), noise_multiplier)[0])


def gaussian_epsilons(noise_multiplier: float, deltas: FloatArray) -> FloatArray:
    """Epsilon of the Gaussian mechanism at each delta, by bisection that ends on the safe side.

    A delta of 1 or more gives 0. The search starts from the tail bound delta <= exp(-(epsilon - 1/(2 s^2))^2 s^2 / 2).
    """
    capped = np.minimum(deltas, 1.0)
    high = 0.5 / noise_multiplier**2 + np.sqrt(-2 * np.log(capped)) / noise_multiplier
    low = np.zeros_like(high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        enough = gaussian_profile(middle, noise_multiplier) <= capped
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(gaussian_profile(np.zeros_like(high), noise_multiplier) <= capped, 0.0, high)


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Epsilon of the Gaussian mechanism, exactly up to a rounding upwards. No noise gives infinity."""
    check_open_unit("delta", delta)
    if check_non_negative("noise_multiplier", noise_multiplier) == 0:
        return math.inf
    high = 0.5 / noise_multiplier**2 + math.sqrt(-2 * math.log(delta)) / noise_multiplier
    return least_within(lambda epsilon: gaussian_delta(noise_multiplier, epsilon), delta, 0.0, high)


def gaussian_noise(epsilon: float, delta: float) -> float:
    """The least noise multiplier with which one Gaussian mechanism is (epsilon, delta)-DP, rounded upwards."""
    check_positive("epsilon", epsilon)
    check_open_unit("delta", delta)
    root = float(gaussian_mechanism.get_sigma_gaussian(epsilon, delta))
    return root * (1 + 1e-9)


def gdp_to_epsilon(mu: float, delta: float) -> float:
    r"""Epsilon at ``delta`` from :math:`\mu`-GDP: that of a Gaussian mechanism with noise multiplier :math:`1/\mu`."""
    check_open_unit("delta", delta)
    if check_non_negative("mu", mu) == 0:
        return 0.0
    return gaussian_epsilon(1 / mu, delta)


def gdp_to_delta(mu: float, epsilon: float) -> float:
    r"""Delta at ``epsilon`` from :math:`\mu`-GDP."""
    check_non_negative("epsilon", epsilon)
    return 0.0 if check_non_negative("mu", mu) == 0 else gaussian_delta(1 / mu, epsilon)


def gdp_from_budget(budget: Budget) -> float:
    r"""The largest :math:`\mu` for which :math:`\mu`-GDP implies the budget."""
    return 1 / gaussian_noise(budget.epsilon, budget.delta)


def group_privacy(budget: Budget, size: int) -> Budget:
    r"""What a guarantee for one record says about ``size`` records that change together:

    .. math:: \left(k\epsilon,\; \delta\,\frac{e^{k\epsilon} - 1}{e^\epsilon - 1}\right)

    (Vadhan 2017, lemma 2.2). Where delta reaches 1 nothing is guaranteed, which is an `InputError`.
    """
    check_count("size", size)
    delta = budget.delta * _geometric_sum(budget.epsilon, size) if budget.delta else 0.0
    if delta >= 1:
        raise InputError(
            f"size={size}: a group of this size has delta {delta:.3g} at epsilon {budget.epsilon:g} for one, and no "
            "guarantee remains. Take a smaller group, epsilon or delta."
        )
    return Budget(size * budget.epsilon, delta)


def _geometric_sum(epsilon: float, size: int) -> float:
    if epsilon == 0:
        return float(size)
    if size * epsilon > 700:
        return math.inf
    return math.expm1(size * epsilon) / math.expm1(epsilon)


def _best_order(bound: Callable[[float], float], guess: float) -> float:
    result = optimize.minimize_scalar(
        lambda log_excess: bound(1 + math.exp(log_excess)),
        bounds=(math.log(guess) - 12, math.log(guess) + 12),
        method="bounded",
        options={"xatol": 1e-8},
    )
    return float(result.fun)


def _check_order(order: float) -> None:
    if not order > 1:
        raise InputError(f"order={order!r}: must be above 1.")
