"""Private normalisation: each channel's mean and variance over all records, learned from noisy sums."""

import dataclasses
import math

import torch
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_positive
from tacit.mechanisms import Gaussian
from tacit.training.preparation.rows import on_grid, shortened_rows

_GRID = 2.0**-30  # coordinates are whole multiples of this, so that sums over records are exact
_EPSILON = 1e-5  # added to variances, as batch normalisation does
_CHUNK = 256  # records at once: what caches hold


@dataclasses.dataclass(frozen=True)
class ChannelNormalisation:
    r"""Brings every channel to about mean 0 and variance 1, as batch normalisation would, with the statistics private.

    For an input x with K channels let :math:`m(x), s(x) \in \mathbb{R}^K` be the means and mean squares of its channels
    over all places. Released are, with noise :math:`N(0, z^2)` on every coordinate,

    .. math:: \sum_i \mathrm{clip}_1(m(x_i) / \tau_m) \quad\text{and}\quad \sum_i \mathrm{clip}_1(s(x_i) / \tau_s),

    where :math:`\mathrm{clip}_1` shortens a vector to length 1. Times :math:`\tau_m / N` and :math:`\tau_s / N`, with a
    **public** N, they estimate mean and mean square of each channel, and inputs become
    :math:`(x - \mu) / \sqrt{v + 10^{-5}}` with :math:`v = \mathrm{sq} - \mu^2`. Channels whose noisy variance is not
    above zero become zero.

    **Sensitivity.** One record adds a vector of length at most 1 to each sum, so at most :math:`\sqrt 2` to both as one
    vector. Two Gaussian mechanisms of noise multiplier z are one of :math:`z / \sqrt 2`, and that is the event. The
    bounds :math:`\tau` are public constants. A median of norms that was taken without noise, as published code has it,
    would be a look at the data that nobody counts.

    Coordinates are rounded towards zero to multiples of 2^-30, which makes no vector longer, so that sums are exact in
    float64, in any order, for up to 2^22 records.

    Edge cases: a record that is not finite contributes zero. Inputs without places, of shape (K,), are normalised each
    coordinate by itself. Bounds far above the norms cost precision, bounds below them shrink the estimates; neither
    changes the guarantee.

    Args:
        examples: N, the public number of examples that sums are divided by.
        noise_multiplier: z, of each of the two sums.
        mean_bound: :math:`\tau_m`.
        square_bound: :math:`\tau_s`.

    Reference: Tramèr and Boneh, Differentially Private Learning Needs Better Features (or Much More Data), 2021.
    """

    examples: int
    noise_multiplier: float
    mean_bound: float = 1.0
    square_bound: float = 1.0

    def __post_init__(self) -> None:
        check_count("examples", self.examples)
        check_positive("noise_multiplier", self.noise_multiplier)
        check_positive("mean_bound", self.mean_bound)
        check_positive("square_bound", self.square_bound)

    @property
    def mechanism(self) -> Gaussian:
        """Gaussian noise of scale z on both sums, whose joint sensitivity is the root of 2."""
        return Gaussian(self.noise_multiplier / math.sqrt(2), math.sqrt(2))

    def statistic(self, inputs: Tensor) -> Tensor:
        """The two sums one after the other: 2 K numbers in units of the bounds."""
        channels = _channels(tuple(inputs.shape[1:]))
        total = torch.zeros(2, channels, dtype=torch.float64, device=inputs.device)
        for chunk in torch.split(inputs, _CHUNK):
            values = chunk.double()[..., None].flatten(2)
            values = values.where(values.isfinite().all(2).all(1)[:, None, None], 0.0)
            total[0] += on_grid(shortened_rows(values.mean(2) / self.mean_bound), _GRID).sum(0)
            total[1] += on_grid(shortened_rows(values.square().mean(2) / self.square_bound), _GRID).sum(0)
        return total.flatten()

    def transform(self, released: Tensor, input_shape: tuple[int, ...]) -> nn.Module:
        """The affine map of every channel."""
        means, squares = released.double().view(2, _channels(input_shape)) / self.examples
        means, squares = self.mean_bound * means, self.square_bound * squares
        variances = squares - means.square()
        scales = torch.where(variances > 0, (variances.clamp_min(0) + _EPSILON).rsqrt(), 0.0)
        return ChannelMap(means.float(), scales.float())

    def describe(self) -> str:
        """A clause for statements."""
        return (
            "normalisation of channels by two noisy sums with noise multiplier "
            f"{self.noise_multiplier:.6g} each, for bounds {self.mean_bound:.6g} and {self.square_bound:.6g}"
        )


class ChannelMap(nn.Module):
    """Subtracts a number from each channel, dimension 1, and multiplies with another; neither trains."""

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)

    def forward(self, inputs: Tensor) -> Tensor:
        shape = (-1, *[1] * (inputs.dim() - 2))
        return (inputs - self.shift.view(shape)) * self.scale.view(shape)


def _channels(input_shape: tuple[int, ...]) -> int:
    if not input_shape:
        raise InputError("inputs: single numbers have no channels. Give each record a dimension of its own.")
    return input_shape[0]
