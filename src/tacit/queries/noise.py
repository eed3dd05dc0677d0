"""From how far a row can move some integers, and what that may cost, to noise of the right scale."""

import dataclasses
import functools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tacit.core.privacy import Neighbours
from tacit.mechanisms.discrete import DiscreteLaplace
from tacit.mechanisms.grid import grid_l1_sensitivity, grid_l2_sensitivity
from tacit.mechanisms.rounded_gaussian import RoundedGaussian
from tacit.mechanisms.selection import pure_event
from tacit.queries.terms import GAUSSIAN, Terms

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """What basic and strong composition know of a release, whatever the relation.

    Attributes:
        epsilon: of pure differential privacy; None for Gaussian noise.
        noise_over_distance: of Gaussian noise; None for pure differential privacy.
        count: how many such releases.
    """

    epsilon: float | None = None
    noise_over_distance: float | None = None
    count: int = 1


class Cost(Protocol):
    """What a release costs, for any number of rows that change together.

    Accounting takes a second to load, and answers without a ledger need none of it: so it is loaded where it is used.
    """

    def event(self, records: int) -> "DpEvent":
        """For accountants, under the relation that the release was planned for."""
        ...

    def guarantee(self, records: int) -> Guarantee:
        """For basic and strong composition."""
        ...


@dataclasses.dataclass(frozen=True)
class Distance:
    """How far **one row** moves a list of integers at most, under the relation in use."""

    l1: int
    l2: Fraction

    @classmethod
    def of_one_integer(cls, steps: int) -> "Distance":
        """One integer alone moves as far in every norm."""
        return cls(steps, Fraction(steps))

    def rounded(self, units: int, sums: int) -> "Distance":
        """In steps of so many units, after each of ``sums`` sums was rounded half up to whole steps.

        See `grid_l1_sensitivity` and `grid_l2_sensitivity`. Even in L1, since accountants expect half of what a
        replaced row moves.
        """
        l1 = grid_l1_sensitivity(self.l1, units, sums)
        l2 = grid_l2_sensitivity(float(at_least_root(self.l2**2)), units, sums)
        return Distance(l1 + l1 % 2, Fraction(l2))


@dataclasses.dataclass(frozen=True)
class Noise:
    """Exact integer noise on every coordinate, and what it costs.

    Attributes:
        mechanism: its sensitivity is the distance of the whole unit.
        distance: of one row.
        neighbours: the relation that the distance was counted for.
    """

    mechanism: DiscreteLaplace | RoundedGaussian
    distance: Distance
    neighbours: Neighbours

    @classmethod
    def calibrated(cls, terms: Terms, distance: Distance) -> "Noise":
        r"""The least noise that keeps to the terms, for k rows that change together.

        Laplace: scale :math:`k\Delta_1 / \epsilon`. Gaussian: :math:`k\Delta_2` times the least multiplier of the
        Gaussian mechanism by its exact curve (Balle and Wang 2018, https://arxiv.org/abs/1805.06530).
        """
        records = terms.records
        if terms.mechanism == GAUSSIAN:
            moved = records * distance.l2
            scale = Fraction(_multiplier(terms.epsilon, terms.delta)) * moved
            return cls(RoundedGaussian(scale, moved), distance, terms.neighbours)
        mechanism = DiscreteLaplace.from_epsilon(terms.exact_epsilon, records * distance.l1)
        return cls(mechanism, distance, terms.neighbours)

    @property
    def name(self) -> str:
        """For statements."""
        return "rounded Gaussian noise" if isinstance(self.mechanism, RoundedGaussian) else "discrete Laplace noise"

    @property
    def scale(self) -> float:
        """The scale of the noise on each integer: b of Laplace, the standard deviation of Gaussian noise."""
        return float(self.mechanism.scale)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on each integer."""
        return self.scale if isinstance(self.mechanism, RoundedGaussian) else math.sqrt(2) * self.scale

    def add(self, exact: list[int], stream: np.random.Generator) -> list[int]:
        """The integers plus noise."""
        return [value + drawn for value, drawn in zip(exact, self.mechanism.draw(len(exact), stream), strict=True)]

    def event(self, records: int) -> "DpEvent":
        """For accountants, who expect one row's contribution and double it themselves where a row is replaced.

        A distance that is no double of an integer has no such form with Laplace noise: it is then counted as any
        release of the same epsilon.
        """
        from tacit.accounting.relations import contributions_moved

        moved, scale = contributions_moved(self.neighbours), Fraction(self.mechanism.scale)
        if isinstance(self.mechanism, RoundedGaussian):
            return RoundedGaussian(scale, records * self.distance.l2 / moved).event()
        if records * self.distance.l1 % moved:
            return pure_event(float(records * self.distance.l1 / scale), self.neighbours)
        return DiscreteLaplace(scale, records * self.distance.l1 // moved).event()

    def guarantee(self, records: int) -> Guarantee:
        scale = Fraction(self.mechanism.scale)
        if isinstance(self.mechanism, RoundedGaussian):
            return Guarantee(noise_over_distance=float(scale / (records * self.distance.l2)))
        return Guarantee(epsilon=float(records * self.distance.l1 / scale))


@functools.lru_cache(maxsize=64)
def _multiplier(epsilon: float, delta: float) -> float:
    from tacit.accounting.conversion import gaussian_noise

    return gaussian_noise(epsilon, delta)


def classical_scale(terms: Terms, distance: Distance) -> float | None:
    r"""What the bound :math:`\sigma \ge \Delta\sqrt{2\ln(1.25/\delta)}/\epsilon` would ask for (Dwork and Roth 2014,
    theorem 3.22), to compare; None where it is not proved, from epsilon = 1 on, and without delta.
    """
    if not 0 < terms.epsilon < 1 or terms.delta == 0:
        return None
    return terms.records * float(distance.l2) * math.sqrt(2 * math.log(1.25 / terms.delta)) / terms.epsilon


def at_least_root(square: int | Fraction) -> Fraction:
    """A fraction that is no smaller than the root, by a rounding."""
    root = math.sqrt(square)
    return Fraction(root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf))
