"""Real statistics on a public grid: rounded first, then noised with exact integers."""

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Self, overload

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_positive
from tacit.mechanisms.checks import check_value
from tacit.mechanisms.discrete import DiscreteGaussian, DiscreteLaplace

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Reals = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class GridRelease:
    r"""Releases :math:`g (\mathrm{round}(v / g) + y)` with exact integer noise y, for a public granularity g.

    Rounding is half up in exact arithmetic, :math:`\lfloor v / g + 1/2 \rfloor`, so that it commutes with
    whole shifts. The released number is a function of the noised integer alone: whatever the value was, it
    lies on the grid, and its low bits tell nothing. This closes the floating-point holes of Mironov 2012.

    Rounding can increase the sensitivity; `laplace` and `gaussian` take the sensitivity of the *unrounded*
    value and pay for it, see `grid_l1_sensitivity` and `grid_l2_sensitivity`.

    Args:
        mechanism: the integer mechanism, its scale and sensitivity in grid units.
        granularity: g, above 0; a public number. A power of two makes every grid point a float exactly.
    """

    mechanism: DiscreteLaplace | DiscreteGaussian
    granularity: float

    def __post_init__(self) -> None:
        check_positive("granularity", self.granularity)

    @classmethod
    def laplace(cls, *, scale: float, sensitivity: float, granularity: float, changed_coordinates: int) -> Self:
        """Discrete Laplace noise; all in the units of the value.

        Args:
            scale: b, the scale of the noise.
            sensitivity: the L1 norm by which one record moves the unrounded value at most.
            granularity: the distance of two grid points.
            changed_coordinates: how many coordinates differ at most between neighbouring data sets: 1 for a
                number, all of them for a vector of which nothing else is known.
        """
        steps = grid_l1_sensitivity(sensitivity, granularity, changed_coordinates)
        return cls(DiscreteLaplace(_in_grid_units(check_positive("scale", scale), granularity), steps), granularity)

    @classmethod
    def gaussian(cls, *, scale: float, sensitivity: float, granularity: float, changed_coordinates: int) -> Self:
        """Discrete Gaussian noise; as `laplace`, with the standard deviation and the L2 norm.

        The sensitivity is that under the relation in use, see `DiscreteGaussian`.
        """
        moved = grid_l2_sensitivity(sensitivity, granularity, changed_coordinates)
        return cls(DiscreteGaussian(_in_grid_units(check_positive("scale", scale), granularity), moved), granularity)

    @property
    def scale(self) -> float:
        """The scale of the noise, in the units of the value."""
        return float(self.mechanism.scale) * self.granularity

    def event(self) -> "DpEvent":
        """The integer mechanism's event: scaling by a public constant costs nothing."""
        return self.mechanism.event()

    @overload
    def add_noise(self, value: float, stream: np.random.Generator) -> float: ...
    @overload
    def add_noise(self, value: Reals, stream: np.random.Generator) -> Reals: ...
    def add_noise(self, value: float | Reals, stream: np.random.Generator) -> float | Reals:
        """The number, or the array of numbers, rounded to the grid and noised. Values must be finite."""
        if not isinstance(value, np.ndarray):
            return self._release([check_value(value)], stream)[0]
        if not np.isfinite(value).all():
            raise InputError("value: must be finite, but holds an infinity or NaN. Clip it before the release.")
        return np.array(self._release(value.ravel().tolist(), stream), dtype=np.float64).reshape(value.shape)

    def _release(self, values: Sequence[float], stream: np.random.Generator) -> list[float]:
        step = Fraction(float(self.granularity))
        rounded = (math.floor(Fraction(value) / step + Fraction(1, 2)) for value in values)
        noise = self.mechanism.draw(len(values), stream)
        return [float((known + drawn) * step) for known, drawn in zip(rounded, noise, strict=True)]


def grid_l1_sensitivity(sensitivity: float, granularity: float, changed_coordinates: int) -> int:
    r"""The exact L1 sensitivity, in grid units, of a vector whose coordinates are rounded half up.

    A coordinate that moves by :math:`\delta > 0` grid units moves by up to :math:`\lceil \delta \rceil`
    after rounding. Over k coordinates with :math:`\sum \delta_i \le s` the supremum of
    :math:`\sum \lceil \delta_i \rceil` is :math:`\lceil s \rceil + k - 1`: one coordinate carries the whole steps,
    each other one an arbitrarily small push over a boundary. It is attained.
    """
    moved, coordinates = _checked_move(sensitivity, granularity, changed_coordinates)
    return math.ceil(moved) + coordinates - 1


def grid_l2_sensitivity(sensitivity: float, granularity: float, changed_coordinates: int) -> float:
    r"""A bound on the L2 sensitivity, in grid units, of a vector whose coordinates are rounded half up.

    With :math:`\lceil \delta_i \rceil = a_i + 1` for whole :math:`a_i < \delta_i` and :math:`\sum \delta_i^2
    \le s^2`, the squared norm after rounding is :math:`\sum (a_i + 1)^2 = \sum a_i^2 + 2 \sum a_i + k`,
    where :math:`\sum a_i^2 \le A = \lceil s^2 \rceil - 1` and :math:`\sum a_i \le \min(A, \sqrt{k A})`. So
    it is at most :math:`A + 2 \min(A, \lfloor \sqrt{k A} \rfloor) + k`, which is attained for :math:`A \le
    k` and never above :math:`(s + \sqrt{k})^2`. One coordinate moves by exactly :math:`\lceil s \rceil`.
    """
    moved, coordinates = _checked_move(sensitivity, granularity, changed_coordinates)
    if coordinates == 1:
        return float(math.ceil(moved))
    squares = math.ceil(moved**2) - 1
    total = squares + 2 * min(squares, math.isqrt(coordinates * squares)) + coordinates
    root = math.sqrt(total)
    return root if Fraction(root) ** 2 >= total else math.nextafter(root, math.inf)


def _checked_move(sensitivity: float, granularity: float, changed_coordinates: int) -> tuple[Fraction, int]:
    check_positive("sensitivity", sensitivity)
    check_positive("granularity", granularity)
    return _in_grid_units(sensitivity, granularity), check_count("changed_coordinates", changed_coordinates)


def _in_grid_units(value: float, granularity: float) -> Fraction:
    return Fraction(float(value)) / Fraction(float(granularity))
