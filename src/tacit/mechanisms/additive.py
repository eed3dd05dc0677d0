"""What the floating-point mechanisms share: checks, precision, and noise on numbers, tensors and mappings."""

import abc
from collections.abc import Callable, Mapping
from typing import overload

import numpy as np
import torch
from dp_accounting import dp_event

from tacit.core.errors import InputError
from tacit.mechanisms.checks import check_value


class AdditiveMechanism(abc.ABC):
    """Releases a value plus independent noise on every coordinate.

    Formal guarantee: that of `event`, provided that the value moves by no more than the sensitivity between
    neighbouring data sets, in exact arithmetic. Noise and sum are floating-point numbers here, whose low
    bits may tell a little about the value (Mironov 2012); for statistics that are published themselves use
    `GridRelease`.

    Edge cases: an empty tensor stays empty; values that are not finite are refused; the value is never
    changed in place; no global generator is read or advanced.
    """

    @abc.abstractmethod
    def event(self) -> dp_event.DpEvent:
        """What an accountant must know of one release."""

    @abc.abstractmethod
    def _noise(self, like: torch.Tensor, stream: np.random.Generator) -> torch.Tensor:
        """Noise in the shape, precision and place of ``like``, which is float32 or float64."""

    @overload
    def add_noise(self, value: float, stream: np.random.Generator) -> float: ...
    @overload
    def add_noise(self, value: torch.Tensor, stream: np.random.Generator) -> torch.Tensor: ...
    def add_noise(self, value: float | torch.Tensor, stream: np.random.Generator) -> float | torch.Tensor:
        """The value plus noise on every coordinate, in the value's own shape and precision.

        A tensor of less than 32 bits is noised in float32 and rounded once at the end, so that the rounding
        is post-processing of a release in float32.
        """
        if not isinstance(value, torch.Tensor):
            return float(self._noised(torch.tensor(check_value(value), dtype=torch.float64), stream))
        if not value.is_floating_point():
            raise InputError(f"value of dtype {value.dtype}: must be of a floating-point type. Convert it first.")
        precision = torch.float64 if value.dtype == torch.float64 else torch.float32
        return self._noised(value.detach().to(precision), stream).to(value.dtype)

    def add_noise_to(
        self, tensors: Mapping[str, torch.Tensor], stream_for: Callable[[str], np.random.Generator]
    ) -> dict[str, torch.Tensor]:
        """Noise on several tensors that are one release, such as the gradients of one step by parameter name.

        The sensitivity is that of all tensors together. ``stream_for`` must give every name a stream of its
        own, such as ``lambda name: randomness.stream("noise", step, name)``.
        """
        return {name: self.add_noise(tensor, stream_for(name)) for name, tensor in tensors.items()}

    def _noised(self, value: torch.Tensor, stream: np.random.Generator) -> torch.Tensor:
        self.check_finite(value)
        return value + self._noise(value, stream)

    def check_finite(self, value: torch.Tensor) -> None:
        """Refuses values that no noise can hide."""
        # The extremes show an infinity or NaN as well as every single value would, in one pass.
        if value.numel() and not bool(torch.isfinite(torch.stack(torch.aminmax(value))).all()):
            raise InputError("value: must be finite, but holds an infinity or NaN. Clip or drop it before the release.")
