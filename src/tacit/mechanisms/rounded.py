"""The Gaussian mechanism on integers, rounded to integers."""

import dataclasses

import numpy as np
import torch
from dp_accounting import dp_event

from tacit.core.randomness import standard_normal
from tacit.core.validation import check_positive
from tacit.mechanisms.additive import check_noise
from tacit.mechanisms.discrete import IntegerMechanism


@dataclasses.dataclass(frozen=True)
class RoundedGaussian(IntegerMechanism):
    r"""Adds :math:`\mathrm{round}(y)` with :math:`y \sim N(0, z^2 \Delta^2)` to every integer.

    For an integer v, :math:`v + \mathrm{round}(y) = \mathrm{round}(v + y)`: the release is the Gaussian mechanism
    followed by rounding, so it keeps the exact guarantee of Balle and Wang, 2018, https://arxiv.org/abs/1805.06530, and
    composes with other Gaussians exactly. The discrete Gaussian has an exact sampler but is accounted by
    zero-concentrated privacy, which costs a sixth more noise at epsilon 1; this one needs the sum and the released
    number to be integers, which closes the holes of floating-point sums (Mironov 2012), and draws y itself in double
    precision.

    Args:
        noise_multiplier: z, the standard deviation in units of the sensitivity.
        sensitivity: how far one record's contribution moves the integers at most, in L2 norm: the distance under
            add-remove and zero-out. A replaced record moves them twice as far, which accountants know. With a scale
            below one, rounding would show; take integers of a finer unit then.
        unsafe_no_noise: allows ``noise_multiplier=0``: the value is released as it is and the event says so.
    """

    noise_multiplier: float
    sensitivity: float
    unsafe_no_noise: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_noise("noise_multiplier", self.noise_multiplier, unsafe_no_noise=self.unsafe_no_noise)
        check_positive("sensitivity", self.sensitivity)

    @property
    def scale(self) -> float:
        """The standard deviation of y."""
        return self.noise_multiplier * self.sensitivity

    def event(self) -> dp_event.DpEvent:
        """A Gaussian event, its multiplier relative to the sensitivity."""
        if self.noise_multiplier == 0:
            return dp_event.NonPrivateDpEvent()
        return dp_event.GaussianDpEvent(float(self.noise_multiplier))

    def draw(self, count: int, stream: np.random.Generator) -> list[int]:
        """``count`` independent integers of noise."""
        drawn = standard_normal((count,), stream, dtype=torch.float64, device=torch.device("cpu"))
        return [int(value) for value in np.rint(self.scale * drawn.numpy())]
