"""The Gaussian mechanism."""

import dataclasses

import numpy as np
import torch
from dp_accounting import dp_event

from tacit.core.randomness import standard_normal
from tacit.core.validation import check_positive
from tacit.mechanisms.additive import AdditiveMechanism
from tacit.mechanisms.checks import check_noise


@dataclasses.dataclass(frozen=True)
class Gaussian(AdditiveMechanism):
    r"""Adds :math:`N(0, z^2 \Delta^2)` to every coordinate: noise multiplier z, L2 sensitivity :math:`\Delta`.

    One release satisfies :math:`\rho`-zCDP with :math:`\rho = 1 / (2 z^2)`; the exact epsilon for every
    delta is that of Balle and Wang, 2018, https://arxiv.org/abs/1805.06530. Noise on several tensors at once
    has one scale for all of them, from their joint sensitivity.

    Args:
        noise_multiplier: z, the standard deviation in units of the sensitivity.
        sensitivity: how far one record's contribution moves the value at most, in L2 norm: the distance
            under add-remove and zero-out. A replaced record moves it twice as far, which accountants know.
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
        """The standard deviation of the noise on each coordinate."""
        return self.noise_multiplier * self.sensitivity

    def event(self) -> dp_event.DpEvent:
        """A Gaussian event, its multiplier relative to the sensitivity."""
        if self.noise_multiplier == 0:
            return dp_event.NonPrivateDpEvent()
        return dp_event.GaussianDpEvent(float(self.noise_multiplier))

    def _noise(self, like: torch.Tensor, stream: np.random.Generator) -> torch.Tensor:
        return self.scale * standard_normal(like.shape, stream, dtype=like.dtype, device=like.device)
