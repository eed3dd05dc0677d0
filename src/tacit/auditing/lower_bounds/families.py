"""Families of mechanisms with one parameter, which a bound turns into epsilon at delta.

The parameter is the leakage: mu of Gaussian DP, one over the noise multiplier of DP-SGD. More leakage is easier to tell
apart, at every error rate.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Protocol

import numpy as np

from tacit.accounting import dpsgd_event, gdp_to_epsilon
from tacit.accounting import epsilon as epsilon_of
from tacit.accounting.dominating import gaussian, gaussian_profile, poisson_sampled
from tacit.accounting.privacy_curve import PrivacyCurve
from tacit.auditing.arrays import FloatArray
from tacit.auditing.lower_bounds.tradeoff import Profile
from tacit.core.validation import check_count, check_probability

_LINES, _CERTIFIED_LINES = 96, 24  # the latter take time, and twice as many raise bounds by half a percent
_FURTHEST = 8.0  # standard deviations of the privacy loss that the lines of a Gaussian reach
_SMALLEST_DELTA = 1e-8
_HALVINGS = 10
_FIRST_LEAKAGE = 1 / 16


class Family(Protocol):
    """Mechanisms that differ in how much they leak."""

    @property
    def most(self) -> float:
        """The largest leakage that is asked for."""
        ...

    def describe(self) -> str:
        """A clause for the method of a bound."""
        ...

    def profile(self, leakage: float) -> Profile:
        """Upper bounds on delta in both directions, for a leakage above 0."""
        ...

    def total_variation(self, leakage: float) -> float:
        """An upper bound on how far apart the mechanism keeps any two neighbours, for a leakage above 0."""
        ...

    def epsilon(self, leakage: float, delta: float) -> float:
        """Epsilon at ``delta``."""
        ...


@dataclasses.dataclass(frozen=True)
class GaussianFamily:
    """All mu-GDP: Gaussian mechanisms and compositions of them. The leakage is mu."""

    most: float = 40.0

    def describe(self) -> str:
        """A clause for the method of a bound."""
        return "if it is Gaussian DP"

    def profile(self, leakage: float) -> Profile:
        """The exact profile, which is the same in both directions, at evenly spaced epsilons."""
        epsilons = np.linspace(0.0, leakage**2 / 2 + _FURTHEST * leakage, _LINES)
        deltas = gaussian_profile(epsilons, 1 / leakage)
        return Profile(epsilons, deltas, deltas)

    def total_variation(self, leakage: float) -> float:
        """Exactly the distance of N(0, 1) and N(mu, 1)."""
        return float(gaussian_profile(np.zeros(1), 1 / leakage)[0])

    def epsilon(self, leakage: float, delta: float) -> float:
        """Epsilon at ``delta`` of mu-GDP."""
        return gdp_to_epsilon(leakage, delta)


@dataclasses.dataclass(frozen=True)
class DpSgdFamily:
    """DP-SGD with Poisson sampling at a fixed rate, for a fixed number of steps. The leakage is 1 / noise multiplier.

    Its trade-off functions come from the privacy loss distribution, with certified deltas: bounds stay on the safe
    side.
    """

    sampling_rate: float
    steps: int
    most: float = 10.0

    def __post_init__(self) -> None:
        check_probability("sampling_rate", self.sampling_rate)
        check_count("steps", self.steps)

    def describe(self) -> str:
        """A clause for the method of a bound."""
        return f"{self.steps} steps of DP-SGD at sampling rate {self.sampling_rate:g}"

    def profile(self, leakage: float) -> Profile:
        """Certified deltas at evenly spaced epsilons; kept, since a search asks again and again."""
        return _dpsgd_profile(self, leakage)

    def total_variation(self, leakage: float) -> float:
        """A certified bound on the distance; kept like the profile."""
        return _dpsgd_total_variation(self, leakage)

    def epsilon(self, leakage: float, delta: float) -> float:
        """Epsilon at ``delta`` by the PLD accountant."""
        return epsilon_of(dpsgd_event(self.sampling_rate, 1 / leakage, self.steps), delta) if leakage else 0.0

    def removal(self, leakage: float) -> PrivacyCurve:
        """The curve of what is released with a record, against without it."""
        return PrivacyCurve((poisson_sampled(gaussian(1 / leakage), self.sampling_rate),), (self.steps,))

    def addition(self, leakage: float) -> PrivacyCurve:
        """The other direction."""
        (pair,) = self.removal(leakage).pairs
        return PrivacyCurve((pair.reversed(),), (self.steps,))


@functools.lru_cache(maxsize=1024)
def _dpsgd_profile(family: DpSgdFamily, leakage: float) -> Profile:
    removal, addition = family.removal(leakage), family.addition(leakage)
    epsilons = np.linspace(0.0, removal.epsilon(_SMALLEST_DELTA), _CERTIFIED_LINES)
    return Profile(epsilons, _deltas(removal, epsilons), _deltas(addition, epsilons))


@functools.lru_cache(maxsize=1024)
def _dpsgd_total_variation(family: DpSgdFamily, leakage: float) -> float:
    return family.removal(leakage).delta(0.0)


def _deltas(curve: PrivacyCurve, epsilons: FloatArray) -> FloatArray:
    """Deltas fall, so from where one is negligible it bounds all others."""
    found: list[float] = []
    for epsilon in epsilons:
        negligible = found and found[-1] < _SMALLEST_DELTA
        found.append(found[-1] if negligible else curve.delta(float(epsilon)))
    return np.asarray(found)


def largest_rejected_leakage(rejects: Callable[[float], bool], most: float) -> float:
    """The largest leakage that is rejected, from below and to three digits; 0 where none is found."""
    low, high = 0.0, _FIRST_LEAKAGE
    while high < most and rejects(high):
        low, high = high, 2 * high
    high = min(high, most)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejects(middle) else (low, middle)
    return low
