"""The Laplace mechanism."""

import dataclasses
from typing import Self

import numpy as np
import torch
from dp_accounting import dp_event

from tacit.core.validation import check_positive
from tacit.mechanisms.additive import AdditiveMechanism
from tacit.mechanisms.checks import check_noise


@dataclasses.dataclass(frozen=True)
class Laplace(AdditiveMechanism):
    r"""Adds noise of density :math:`e^{-|x| / b} / (2b)` to every coordinate, for scale b.

    With L1 sensitivity :math:`\Delta` one release is :math:`(\Delta / b, 0)`-differentially private.

    Reference: Dwork, McSherry, Nissim, Smith, Calibrating Noise to Sensitivity in Private Data Analysis,
    2006.

    Args:
        scale: b, in the units of the value; the standard deviation is :math:`\sqrt{2} b`.
        sensitivity: how far one record's contribution moves the value at most, in L1 norm: the distance
            under add-remove and zero-out. A replaced record moves it twice as far, which accountants know.
        unsafe_no_noise: allows ``scale=0``: the value is released as it is and the event says so.
    """

    scale: float
    sensitivity: float
    unsafe_no_noise: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_noise("scale", self.scale, unsafe_no_noise=self.unsafe_no_noise)
        check_positive("sensitivity", self.sensitivity)

    @classmethod
    def from_epsilon(cls, epsilon: float, sensitivity: float) -> Self:
        """The mechanism that is (epsilon, 0)-differentially private: its scale is sensitivity / epsilon."""
        check_positive("epsilon", epsilon, remedy="Typical budgets lie between 0.1 and 10.")
        return cls(check_positive("sensitivity", sensitivity) / epsilon, sensitivity)

    def event(self) -> dp_event.DpEvent:
        """A Laplace event, its multiplier relative to the sensitivity."""
        if self.scale == 0:
            return dp_event.NonPrivateDpEvent()
        return dp_event.LaplaceDpEvent(self.scale / self.sensitivity)

    def _noise(self, like: torch.Tensor, stream: np.random.Generator) -> torch.Tensor:
        drawn = np.asarray(stream.laplace(size=tuple(like.shape)))
        return self.scale * torch.from_numpy(drawn).to(device=like.device, dtype=like.dtype)
