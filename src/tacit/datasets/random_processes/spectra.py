"""Images with the spectrum of natural ones and nothing else of them."""

import dataclasses
import math

import torch
from torch import Generator, Tensor

from tacit.core.errors import InputError
from tacit.core.validation import check_count
from tacit.datasets.random_processes.process import (
    Range,
    check_range,
    check_size,
    colour_mixing,
    exposed,
    normal,
    standardised,
    uniform,
)


@dataclasses.dataclass(frozen=True)
class PowerLawSpectra:
    r"""Gaussian fields whose amplitudes fall off as :math:`|f|^{-\alpha}`, with random phases and correlated colours.

    Each image draws its exponent :math:`\alpha` and a linear change of coordinates of the frequency plane: a turn by
    a uniform angle, then the axes stretched by r and 1/r. White noise is multiplied by
    :math:`\max(|f|, 1/\text{size})^{-\alpha}` in the Fourier domain, f in cycles a pixel after the change of
    coordinates and 0 where f is; three such fields with one spectrum are brought to variance 1, mixed to colours
    (`colour_mixing`) and exposed. The fields are periodic.

    Args:
        size: height and width of the images.
        exponents: between which :math:`\alpha` is uniform. Photographs have about 1: their power falls off as
            :math:`|f|^{-2}`.
        stretch: the largest r; its logarithm is uniform between 0 and that of this. 1 for isotropic fields.

    Reference: Baradad et al., Learning to See by Looking at Noise, 2021, who take power laws along either axis.
    """

    size: int = 32
    exponents: Range = (0.5, 2.0)
    stretch: float = 2.0

    def __post_init__(self) -> None:
        check_size(self.size)
        check_range("exponents", self.exponents)
        if not 1 <= self.stretch < math.inf:
            raise InputError(f"stretch={self.stretch!r}: must be at least 1, which keeps fields isotropic.")

    def sample(self, count: int, generator: Generator) -> Tensor:
        """Images (count, 3, size, size)."""
        check_count("count", count, minimum=0)
        fields = self.fields(count, 3, generator)
        mixed = colour_mixing(count, generator) @ fields.flatten(2)
        return exposed(mixed.view_as(fields), generator)

    def fields(self, count: int, channels: int, generator: Generator) -> Tensor:
        """Fields (count, channels, size, size) of mean 0 and variance 1, those of one image with one spectrum."""
        white = normal(generator, count, channels, self.size, self.size)
        if not count:
            return white  # transforms of nothing are refused
        noise = torch.fft.rfft2(white)
        amplitudes = self._amplitudes(count, generator)
        return standardised(torch.fft.irfft2(noise * amplitudes, s=(self.size, self.size)))

    def _amplitudes(self, count: int, generator: Generator) -> Tensor:
        device = generator.device
        exponents = uniform(generator, *self.exponents, count, 1, 1, 1)
        angles = uniform(generator, 0.0, math.pi, count, 1, 1, 1)
        ratios = uniform(generator, 0.0, math.log(self.stretch), count, 1, 1, 1).exp()
        down = torch.fft.fftfreq(self.size, device=device)[:, None]
        across = torch.fft.rfftfreq(self.size, device=device)
        first = (across * angles.cos() + down * angles.sin()) * ratios
        second = (down * angles.cos() - across * angles.sin()) / ratios
        amplitudes = torch.hypot(first, second).clamp_min(1 / self.size) ** -exponents
        amplitudes[..., 0, 0] = 0
        return amplitudes
