"""Integer mechanisms with exact noise."""

import abc
import dataclasses
import math
import numbers
from fractions import Fraction
from typing import TYPE_CHECKING, Self, overload

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_positive
from tacit.mechanisms.checks import check_noise
from tacit.mechanisms.integer_noise import RandomBits, discrete_gaussian, discrete_laplace

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Integers = npt.NDArray[np.int64]


class IntegerMechanism(abc.ABC):
    """Releases integers plus independent integer noise. No floating-point number enters value, noise or sum."""

    @abc.abstractmethod
    def event(self) -> "DpEvent":
        """What an accountant must know of one release."""

    @abc.abstractmethod
    def draw(self, count: int, stream: np.random.Generator) -> list[int]:
        """``count`` independent integers of noise."""

    @overload
    def add_noise(self, value: int, stream: np.random.Generator) -> int: ...
    @overload
    def add_noise(self, value: Integers, stream: np.random.Generator) -> Integers: ...
    def add_noise(self, value: int | Integers, stream: np.random.Generator) -> int | Integers:
        """The integer, or the array of integers, plus noise on every coordinate."""
        if not isinstance(value, np.ndarray):
            return _check_integer(value) + self.draw(1, stream)[0]
        if not np.issubdtype(value.dtype, np.integer):
            raise InputError(f"value of dtype {value.dtype}: must be of integers. Use GridRelease for others.")
        noise = self.draw(value.size, stream)
        noised = [int(known) + drawn for known, drawn in zip(value.flat, noise, strict=True)]
        return np.array(noised, dtype=np.int64).reshape(value.shape)


@dataclasses.dataclass(frozen=True)
class DiscreteLaplace(IntegerMechanism):
    r"""Adds an integer y of probability :math:`\tanh(1 / (2b))\, e^{-|y| / b}` to every integer, for scale b.

    With integer L1 sensitivity :math:`\Delta` one release is :math:`(\Delta / b, 0)`-differentially private.
    The sampler works on integers and fractions alone, see `tacit.mechanisms.integer_noise`.

    Args:
        scale: b. A float stands for the fraction that it is exactly.
        sensitivity: how far one record's contribution moves the integers at most, in L1 norm: the distance
            under add-remove and zero-out. A replaced record moves them twice as far, which accountants know.
        unsafe_no_noise: allows ``scale=0``: the value is released as it is and the event says so.
    """

    scale: float | Fraction
    sensitivity: int
    unsafe_no_noise: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_noise("scale", _as_real(self.scale), unsafe_no_noise=self.unsafe_no_noise)
        check_count("sensitivity", self.sensitivity)

    @classmethod
    def from_epsilon(cls, epsilon: float | Fraction, sensitivity: int) -> Self:
        """The mechanism that is (epsilon, 0)-differentially private: its scale is sensitivity / epsilon."""
        check_positive("epsilon", _as_real(epsilon), remedy="Typical budgets lie between 0.1 and 10.")
        return cls(check_count("sensitivity", sensitivity) / _exact(epsilon), sensitivity)

    def event(self) -> "DpEvent":
        """A discrete Laplace event; its parameter 1 / b is rounded up where it is no float."""
        from dp_accounting import dp_event  # here, since it takes a second to load and noise needs none of it

        if self.scale == 0:
            return dp_event.NonPrivateDpEvent()
        return dp_event.DiscreteLaplaceDpEvent(_float_at_least(1 / _exact(self.scale)), self.sensitivity)

    def draw(self, count: int, stream: np.random.Generator) -> list[int]:
        """``count`` independent integers of noise."""
        check_count("count", count, minimum=0)
        scale, bits = _exact(self.scale), RandomBits(stream)
        return [discrete_laplace(scale, bits) if scale else 0 for _ in range(count)]


@dataclasses.dataclass(frozen=True)
class DiscreteGaussian(IntegerMechanism):
    r"""Adds an integer y of probability proportional to :math:`e^{-y^2 / (2 \sigma^2)}` to every integer.

    With L2 sensitivity :math:`\Delta` one release satisfies :math:`\rho`-zCDP with
    :math:`\rho = \Delta^2 / (2 \sigma^2)`, in any number of coordinates (Canonne, Kamath, Steinke, 2020,
    https://arxiv.org/abs/2004.00010, theorem 14). The variance is at most :math:`\sigma^2`, and all but equal
    to it from :math:`\sigma = 1` on.

    Args:
        scale: :math:`\sigma`. A float stands for the fraction that it is exactly.
        sensitivity: the L2 norm by which the integers move at most between neighbouring data sets, under the
            relation in use: rho is stated for this distance, and no accountant doubles it.
        unsafe_no_noise: allows ``scale=0``: the value is released as it is and the event says so.
    """

    scale: float | Fraction
    sensitivity: float | Fraction
    unsafe_no_noise: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_noise("scale", _as_real(self.scale), unsafe_no_noise=self.unsafe_no_noise)
        check_positive("sensitivity", _as_real(self.sensitivity))

    def event(self) -> "DpEvent":
        """A zCDP event; its rho is rounded up where it is no float."""
        from dp_accounting import dp_event

        if self.scale == 0:
            return dp_event.NonPrivateDpEvent()
        return dp_event.ZCDpEvent(_float_at_least((_exact(self.sensitivity) / _exact(self.scale)) ** 2 / 2))

    def draw(self, count: int, stream: np.random.Generator) -> list[int]:
        """``count`` independent integers of noise."""
        check_count("count", count, minimum=0)
        variance, bits = _exact(self.scale) ** 2, RandomBits(stream)
        return [discrete_gaussian(variance, bits) if variance else 0 for _ in range(count)]


def _as_real(value: float | Fraction) -> float:
    """For the checks, which know floats; whatever else it is goes through to be refused there."""
    return float(value) if isinstance(value, Fraction) else value


def _exact(value: float | Fraction) -> Fraction:
    return value if isinstance(value, Fraction) else Fraction(float(value))


def _check_integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputError(
            f"value of type {type(value).__name__}: must be an integer or an array of integers. Use GridRelease."
        )
    return int(value)


def _float_at_least(exact: Fraction) -> float:
    """A float that is no smaller than the fraction: the nearest one or the next."""
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)
