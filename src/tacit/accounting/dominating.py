r"""Dominating pairs: the two distributions that are hardest to tell apart under a mechanism.

A pair (P, Q) is known here through its two privacy profiles, the hockey-stick divergences

.. math:: \delta_{P|Q}(\epsilon) = \sup_S P(S) - e^\epsilon Q(S), \qquad
          \delta_{Q|P}(\epsilon) = \sup_S Q(S) - e^\epsilon P(S), \qquad \epsilon \ge 0,

each computed without cancellation against 1, so that both tails keep their relative precision. At negative epsilon
the identity :math:`\delta_{P|Q}(-\epsilon) = 1 - e^{-\epsilon} + e^{-\epsilon}\,\delta_{Q|P}(\epsilon)` gives the rest.
Zhu, Dong and Wang (2022), *Optimal accounting of differential privacy via characteristic function*, show that a pair
that dominates every step dominates their adaptive composition.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

FloatArray = npt.NDArray[np.float64]
Profile = Callable[[FloatArray], FloatArray]

_CUT_BISECTIONS = 80


@dataclasses.dataclass(frozen=True)
class DominatingPair:
    """Two distributions P and Q, known through their profiles at epsilon >= 0.

    Attributes:
        forward: epsilon to the divergence of P from Q.
        backward: epsilon to the divergence of Q from P.
        atom: a loss that has mass of its own, at whole multiples of which all such losses lie; 0 where there is none.
            A grid that holds it represents the atoms exactly.
    """

    forward: Profile
    backward: Profile
    atom: float = 0.0

    @property
    def is_symmetric(self) -> bool:
        """Whether both directions are known to be the same."""
        return self.forward is self.backward

    def reversed(self) -> "DominatingPair":
        """The pair (Q, P)."""
        return DominatingPair(self.backward, self.forward, self.atom)


def symmetric(profile: Profile, atom: float = 0.0) -> DominatingPair:
    """A pair whose two profiles agree, as for every symmetric additive noise."""
    return DominatingPair(profile, profile, atom)


NO_LOSS = symmetric(np.zeros_like)
NOT_PRIVATE = symmetric(np.ones_like)


def gaussian_profile(epsilons: FloatArray, noise_multiplier: float) -> FloatArray:
    r"""The profile of N(1, s^2) against N(0, s^2), s = ``noise_multiplier`` (Balle and Wang 2018, theorem 8):

    .. math:: \delta(\epsilon) = \Phi(a) - e^\epsilon \Phi(b), \quad a = 1/(2s) - \epsilon s, \quad b = a - 1/s.

    The second term is :math:`\varphi(a)` times the Mills ratio at -b, which neither overflows nor cancels against
    epsilon. Where a < 0 the first term has the same form, and the far tail keeps its relative precision.
    """
    a = 0.5 / noise_multiplier - epsilons * noise_multiplier
    b = a - 1 / noise_multiplier
    half_density = 0.5 * np.exp(-0.5 * a**2)
    second = half_density * special.erfcx(-b / math.sqrt(2))
    first = np.where(a < 0, half_density * special.erfcx(-np.minimum(a, 0.0) / math.sqrt(2)), special.ndtr(a))
    return np.asarray(np.minimum(np.maximum(first - second, 0.0), 1.0))


def gaussian(noise_multiplier: float) -> DominatingPair:
    """The Gaussian mechanism: noise of standard deviation ``noise_multiplier`` times the sensitivity."""
    return symmetric(lambda epsilons: gaussian_profile(epsilons, noise_multiplier))


def laplace(noise_multiplier: float) -> DominatingPair:
    r"""The Laplace mechanism: :math:`\delta(\epsilon) = 1 - e^{(\epsilon - 1/b)/2}` up to epsilon = 1/b, then 0."""
    limit = 1 / noise_multiplier
    return symmetric(lambda epsilons: -np.expm1(np.minimum(0.0, (epsilons - limit) / 2)), limit)


def discrete_laplace(noise_parameter: float, sensitivity: int) -> DominatingPair:
    """The discrete Laplace mechanism with mass proportional to exp(-a |x|), a = ``noise_parameter``.

    P sits at 0 and Q at ``sensitivity`` = k. The loss a(|x - k| - |x|) takes the values a(k - 2x) for x in 0..k.
    """

    def profile(epsilons: FloatArray) -> FloatArray:
        # The loss exceeds epsilon exactly for x <= cut; both cumulative sums are geometric.
        reached = epsilons < noise_parameter * sensitivity
        cut = np.maximum(np.ceil((sensitivity - epsilons / noise_parameter) / 2) - 1, 0)
        beyond_zero = 1 / (1 + math.exp(noise_parameter))
        p_mass = 1 - beyond_zero * np.exp(-noise_parameter * cut)
        q_mass = beyond_zero * np.exp(np.where(reached, epsilons - noise_parameter * (sensitivity - 1 - cut), -np.inf))
        return np.where(reached, np.clip(p_mass - q_mass, 0.0, 1.0), 0.0)

    return symmetric(profile, noise_parameter)


def finite(upper: Sequence[float], lower: Sequence[float]) -> DominatingPair:
    """Two distributions on a finite set, given by their masses, of which the first ones are positive."""
    p, q = np.asarray(upper, dtype=np.float64), np.asarray(lower, dtype=np.float64)

    def against(first: FloatArray, second: FloatArray) -> Profile:
        def profile(epsilons: FloatArray) -> FloatArray:
            scaled = np.exp(np.minimum(epsilons, 700.0))[:, None] * second
            return np.asarray(np.maximum(first - scaled, 0.0).sum(axis=1))

        return profile

    return DominatingPair(against(p, q), against(q, p), abs(math.log(p[0] / q[0])))


def poisson_sampled(pair: DominatingPair, sampling_rate: float) -> DominatingPair:
    r"""(1 - q) Q + q P against Q: what removing one record does to a Poisson-sampled mechanism, q = ``sampling_rate``.

    With :math:`e^{\epsilon'} = 1 + (e^\epsilon - 1)/q` the profile is :math:`q\,\delta_{P|Q}(\epsilon')` in one
    direction, and :math:`q\,e^{\epsilon + \epsilon''}\,\delta_{Q|P}(-\epsilon'')` in the other, where
    :math:`e^{\epsilon''} = 1 - (1 - e^{-\epsilon})/q` (zero once that is not positive).
    """
    if sampling_rate == 1:
        return pair
    odds = (1 - sampling_rate) / sampling_rate

    def forward(epsilons: FloatArray) -> FloatArray:
        return sampling_rate * pair.forward(epsilons + np.log1p(-odds * np.expm1(-epsilons)))

    def backward(epsilons: FloatArray) -> FloatArray:
        shrunk = np.expm1(-epsilons) / sampling_rate
        inside = shrunk > -1
        log_shrunk = np.log1p(np.where(inside, shrunk, 0.0))
        value = sampling_rate * np.exp(np.where(inside, epsilons, 0.0) + log_shrunk) * pair.backward(-log_shrunk)
        return np.where(inside, value, 0.0)

    atom = pair.atom + math.log1p((1 - sampling_rate) * math.expm1(-pair.atom))
    return DominatingPair(forward, backward, atom)


def poisson_sampled_gaussian_replaced(noise_multiplier: float, sampling_rate: float) -> DominatingPair:
    r"""(1 - q) N(0) + q N(-1) against (1 - q) N(0) + q N(1): one record replaced under Poisson sampling.

    Both mixtures have the standard deviation s = ``noise_multiplier``. The loss falls with x and exceeds epsilon
    exactly below :math:`x = s^2 (\operatorname{arsinh}(-\sinh(\epsilon/2)\,\alpha) - \epsilon/2)` with
    :math:`\alpha = e^{1/(2 s^2)} (1 - q)/q`.
    """
    if sampling_rate == 1:
        return gaussian(noise_multiplier / 2)
    variance = noise_multiplier**2
    log_alpha = 0.5 / variance + math.log1p(-sampling_rate) - math.log(sampling_rate)

    def profile(epsilons: FloatArray) -> FloatArray:
        # log sinh(e/2) + log_alpha, then arsinh of its exponential, neither of which may overflow.
        with np.errstate(divide="ignore"):
            log_argument = epsilons / 2 + np.log(-np.expm1(-epsilons)) - math.log(2) + log_alpha
        arsinh = np.logaddexp(log_argument, 0.5 * np.logaddexp(0.0, 2 * log_argument))
        cut = -variance * (arsinh + epsilons / 2)
        at_zero, at_minus, at_plus = (special.log_ndtr((cut + shift) / noise_multiplier) for shift in (0.0, 1.0, -1.0))
        log_in, log_out = math.log(sampling_rate), math.log1p(-sampling_rate)
        log_p = np.logaddexp(log_out + at_zero, log_in + at_minus)
        log_q = np.logaddexp(log_out + at_zero, log_in + at_plus)
        return np.asarray(np.exp(log_p) * np.maximum(-np.expm1(np.minimum(epsilons + log_q - log_p, 0.0)), 0.0))

    return symmetric(profile)


def gaussian_mixture(
    standard_deviation: float, sensitivities: Sequence[float], probabilities: Sequence[float]
) -> DominatingPair:
    """A random shift c_i >= 0, drawn with probability p_i, under Gaussian noise, against no shift.

    Choquette-Choo, Ganesh, Steinke and Thakurta (2023), corollary 4.7. With s = ``standard_deviation`` the loss
    log sum_i p_i exp((2 x c_i - c_i^2) / (2 s^2)) rises with x, so that a profile is a difference of two tails beyond
    one cut, which is found by bisection.
    """
    shifts = np.asarray(sensitivities, dtype=np.float64)[:, None]
    weights = np.asarray(probabilities, dtype=np.float64)[:, None]
    variance = standard_deviation**2
    least_loss = math.log(float(weights[shifts == 0].sum())) if np.any(weights[shifts == 0] > 0) else -math.inf

    def loss(x: FloatArray) -> FloatArray:
        return np.asarray(special.logsumexp((2 * x * shifts - shifts**2) / (2 * variance), axis=0, b=weights))

    def cut(losses: FloatArray) -> FloatArray:
        # One shift alone has loss (2 x c - c^2) / (2 s^2); the mixture lies between extremes that bracket the cut.
        smallest = float(shifts[(shifts > 0) & (weights > 0)].min())
        rarest = float(weights[(shifts > 0) & (weights > 0)].min())
        reach = variance * (np.abs(losses) - math.log(rarest)) / smallest + float(shifts.max()) + 1
        low, high = -reach - 60 * standard_deviation, reach
        for _ in range(_CUT_BISECTIONS):
            middle = (low + high) / 2
            above = loss(middle) > losses
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return high

    def forward(epsilons: FloatArray) -> FloatArray:
        x = cut(epsilons)
        p_tail = (weights * special.ndtr((shifts - x) / standard_deviation)).sum(axis=0)
        q_tail = np.exp(epsilons + special.log_ndtr(-x / standard_deviation))
        return np.asarray(np.clip(p_tail - q_tail, 0.0, 1.0))

    def backward(epsilons: FloatArray) -> FloatArray:
        reached = -epsilons > least_loss
        x = cut(np.where(reached, -epsilons, 0.0))
        p_tail = special.logsumexp(special.log_ndtr((x - shifts) / standard_deviation), axis=0, b=weights)
        q_tail = special.ndtr(x / standard_deviation)
        return np.where(reached, np.clip(q_tail - np.exp(np.minimum(epsilons + p_tail, 0.0)), 0.0, 1.0), 0.0)

    return DominatingPair(forward, backward)


def mixture(first: DominatingPair, second: DominatingPair, first_weight: float) -> DominatingPair:
    """Which of two pairs is used is itself drawn, and seen: profiles average with the weights."""

    def average(one: Profile, other: Profile) -> Profile:
        return lambda epsilons: first_weight * one(epsilons) + (1 - first_weight) * other(epsilons)

    return DominatingPair(average(first.forward, second.forward), average(first.backward, second.backward))
