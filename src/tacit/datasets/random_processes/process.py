"""What every random process answers to, and what they share: draws, colours, exposure.

None of them sees data, so that what is learned from their images says nothing about anybody: no privacy cost. For the
same reason every constant here is a round number, not a statistic of photographs. Their draws decide nothing about
privacy and come from a `torch.Generator`: one seed on one kind of device gives one sequence of images.
"""

import math
from typing import Protocol

import torch
from torch import Generator, Tensor

from tacit.core.errors import InputError
from tacit.core.validation import check_count

_BRIGHTNESS = (0.5, 0.15)  # mean and spread of the mean brightness of images
_CONTRAST = (0.1, 0.3)  # bounds of the standard deviation of an image's pixels
_MIN_SPREAD = 1e-6  # of a field that can still be standardised

Range = tuple[float, float]


class RandomProcess(Protocol):
    """A distribution of square colour images."""

    @property
    def size(self) -> int:
        """Height and width of the images."""

    def sample(self, count: int, generator: Generator) -> Tensor:
        """Images (count, 3, size, size) in [0, 1] as float32, on the generator's device."""


def normal(generator: Generator, *shape: int) -> Tensor:
    """Standard normal numbers on the generator's device."""
    return torch.randn(shape, generator=generator, device=generator.device)


def uniform(generator: Generator, low: float, high: float, *shape: int) -> Tensor:
    """Uniform numbers on the generator's device."""
    return low + (high - low) * torch.rand(shape, generator=generator, device=generator.device)


def standardised(fields: Tensor) -> Tensor:
    """Fields (..., H, W), each with mean 0 and variance 1; a constant one becomes zero."""
    centred = fields - fields.mean(dim=(-2, -1), keepdim=True)
    return centred / centred.square().mean(dim=(-2, -1), keepdim=True).sqrt().clamp_min(_MIN_SPREAD)


def colour_mixing(count: int, generator: Generator) -> Tensor:
    """Matrices (count, 3, 3) that make coloured images out of three independent channels of variance 1.

    The first channel goes to all colours alike and the others where a Gaussian matrix sends them, weaker by a factor
    uniform on [0, 1]: red, green and blue are positively correlated, as under a common light, from grey images up to
    colourful ones. Every row has length 1, so that each colour has variance 1.
    """
    rows = uniform(generator, 0.0, 1.0, count, 1, 1) * normal(generator, count, 3, 3)
    rows[:, :, 0] += 1
    return rows / rows.square().sum(dim=2, keepdim=True).sqrt().clamp_min(_MIN_SPREAD)


def exposed(fields: Tensor, generator: Generator) -> Tensor:
    """Fields (N, 3, H, W) of variance 1 as images in [0, 1], with a random brightness, tint and contrast for each."""
    count = len(fields)
    middle, spread = _BRIGHTNESS
    brightness = middle + spread * normal(generator, count, 1, 1, 1) + spread / 2 * normal(generator, count, 3, 1, 1)
    contrast = uniform(generator, *_CONTRAST, count, 1, 1, 1)
    return (brightness + contrast * fields).clamp(0, 1)


def check_size(size: int, *, minimum: int = 4) -> None:
    """A size that images can have."""
    check_count("size", size, minimum=minimum)


def check_range(name: str, bounds: Range, *, above: float = -math.inf, at_most: float = math.inf) -> None:
    """A lower and an upper bound."""
    if not above < bounds[0] <= bounds[1] <= at_most:
        raise InputError(f"{name}={bounds!r}: must be a lower and an upper bound, above {above:g} up to {at_most:g}.")
