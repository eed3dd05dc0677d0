"""Private centring and whitening: features of one length, without what all have in common, in balanced directions.

Noise on a gradient does not depend on the features, so what a private model can learn in a given time depends on how
much of its features' length lies where classes differ. Both preparations move length there: away from the mean, which
all examples share, and from the few directions that most features follow. Neither has a constant to choose: records are
scaled to length 1, so that no bound on them needs to be known or guessed.
"""

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_positive, check_probability
from tacit.mechanisms import Gaussian
from tacit.training.preparation.rows import on_grid, symmetric_matrix, unit_rows, upper_triangle

_FINE_GRID = 2.0**-30  # coordinates are multiples of this where they are summed
_COARSE_GRID = 2.0**-16  # and of this where their products are, so that every sum is exact
_CHUNK = 256  # records at once: what caches hold

Kind = tuple[int, int]
"""Channels and places of features of one kind."""


@dataclasses.dataclass(frozen=True)
class Centring:
    r"""Subtracts the mean of all examples, each scaled to one length.

    With :math:`u(x) = x / \|x\|_2` the release is :math:`\sum_i u(x_i) + N(0, z^2 I)`; over a **public** N it estimates
    the mean :math:`\mu`. Inputs become :math:`u(x) - \mu`, scaled to the length :math:`\sqrt d`, d being the number of
    coordinates, so that these are about 1 in size.

    **Sensitivity.** One record adds a vector of length at most 1. Coordinates are rounded towards zero to multiples of
    2^-30, which makes none longer, so that sums are exact in float64, in any order, for up to 2^22 records.

    Edge cases: a record of zeros, or one that is not finite, contributes zero.

    Args:
        examples: N, the public number of examples that the sum is divided by.
        noise_multiplier: z.
    """

    examples: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_count("examples", self.examples)
        check_positive("noise_multiplier", self.noise_multiplier)

    @property
    def mechanism(self) -> Gaussian:
        """Gaussian noise for the sensitivity 1."""
        return Gaussian(self.noise_multiplier, 1.0)

    def statistic(self, inputs: Tensor) -> Tensor:
        """The sum of the unit vectors, flat."""
        rows = inputs.flatten(1)
        total = torch.zeros(rows.shape[1], dtype=torch.float64, device=inputs.device)
        for chunk in torch.split(rows, _CHUNK):
            total += on_grid(unit_rows(chunk.double()), _FINE_GRID).sum(0)
        return total

    def transform(self, released: Tensor, input_shape: tuple[int, ...]) -> nn.Module:
        """The map that scales, subtracts and scales again."""
        mean = released.view(input_shape) / self.examples * math.sqrt(released.numel())
        return Centred(mean.float())

    def describe(self) -> str:
        """A clause for statements."""
        return f"centring by a noisy mean of unit vectors with noise multiplier {self.noise_multiplier:.6g}"


@dataclasses.dataclass(frozen=True)
class ChannelWhitening:
    r"""Turns and scales channels so that they have about equal variance and are uncorrelated.

    Let :math:`u(x) = x / \|x\|_2` and :math:`u_p \in \mathbb{R}^K` the channels of u at the place p. The release is

    .. math:: \sum_i \sum_p u_p(x_i)\, u_p(x_i)^\top + E,

    where E is symmetric and its entries on and above the diagonal are independent: :math:`N(0, z^2)` on it,
    :math:`N(0, z^2/2)` above. Over a **public** N that is :math:`V \mathrm{diag}(\lambda) V^\top`, and inputs become
    :math:`V \mathrm{diag}(\max(\lambda, f))^{-a/2} V^\top x` at every place, scaled to the length :math:`\sqrt d`. The
    floor :math:`f = z \sqrt{2K} / N` (times :math:`\sqrt B`, see below) is about the largest eigenvalue of the noise:
    what is below it cannot be told from noise, and is left in the proportions it had. With a = 1 all directions above
    it get the same variance; less leaves those that vary most a larger share.

    **Sensitivity.** The statistic is the vector of the entries on the diagonal and :math:`\sqrt 2` times those above.
    One record moves it by the Frobenius norm of its matrix, which has no negative eigenvalue:
    :math:`\|\sum_p u_p u_p^\top\|_F \le \mathrm{tr} \sum_p u_p u_p^\top = \|u\|_2^2 \le 1`.

    **Several kinds of features.** Rows that hold B kinds side by side (`tacit.models.SideBySide`) are whitened kind by
    kind, each scaled to length 1 by itself. One record then moves the matrices of all kinds, as one vector, by at most
    :math:`\sqrt B`, and noise has the scale :math:`z \sqrt B`: z is the noise multiplier of all of them together.

    Coordinates are rounded towards zero to multiples of 2^-16, which makes no record longer, so that sums of products
    are exact in float64, in any order, for up to n = 2^21 records. The factor :math:`\sqrt 2` then moves neighbouring
    vectors apart by at most :math:`2 n 2^{-53} \le 2^{-31}`, and records are shortened by 1 - 2^-30 beforehand.

    Edge cases: a record of zeros, or one that is not finite, contributes zero; of several kinds, that kind alone.
    Second moments are about zero: have `Centring` before it in the plan.

    Args:
        examples: N, the public number of examples that sums are divided by.
        noise_multiplier: z.
        power: a, above 0 and at most 1.
        kinds: channels and places of each kind that a row holds; by default one kind, with channels first.
    """

    examples: int
    noise_multiplier: float
    power: float = 1.0
    kinds: tuple[Kind, ...] = ()

    def __post_init__(self) -> None:
        check_count("examples", self.examples)
        check_positive("noise_multiplier", self.noise_multiplier)
        check_probability("power", self.power, remedy="With 1 channels are whitened, with less in part.")
        for channels, places in self.kinds:
            check_count("kinds", channels)
            check_count("kinds", places)

    @property
    def mechanism(self) -> Gaussian:
        """Gaussian noise for the sensitivity 1, or the root of the number of kinds."""
        return Gaussian(self.noise_multiplier, math.sqrt(max(1, len(self.kinds))))

    def statistic(self, inputs: Tensor) -> Tensor:
        """The moments on the diagonal and sqrt 2 times those above it, row by row; one kind after the other."""
        kinds = self._kinds(tuple(inputs.shape[1:]))
        moments = [torch.zeros(kind[0], kind[0], dtype=torch.float64, device=inputs.device) for kind in kinds]
        for chunk in torch.split(inputs.flatten(1), _CHUNK):
            for total, kind, part in zip(moments, kinds, _parts(chunk, kinds), strict=True):
                units = on_grid(unit_rows(part.double()), _COARSE_GRID)
                places = units.view(len(chunk), *kind).transpose(0, 1).flatten(1)
                total.addmm_(places, places.T)
        return torch.cat([upper_triangle(total) for total in moments])

    def transform(self, released: Tensor, input_shape: tuple[int, ...]) -> nn.Module:
        """The map of all places by one matrix for each kind."""
        kinds = self._kinds(input_shape)
        sizes = [channels * (channels + 1) // 2 for channels, _ in kinds]
        matrices = [self._matrix(part, kind[0]) for part, kind in zip(torch.split(released, sizes), kinds, strict=True)]
        return Whitened(matrices, kinds)

    def _matrix(self, released: Tensor, channels: int) -> Tensor:
        values, vectors = torch.linalg.eigh(symmetric_matrix(released, channels) / self.examples)
        floor = self.mechanism.scale * math.sqrt(2 * channels) / self.examples
        matrix: Tensor = (vectors * values.clamp_min(floor).pow(-self.power / 2)) @ vectors.T
        return matrix.float()

    def _kinds(self, input_shape: tuple[int, ...]) -> tuple[Kind, ...]:
        if not self.kinds:
            channels = _channels(input_shape)
            return ((channels, torch.Size(input_shape).numel() // channels),)
        expected = sum(channels * places for channels, places in self.kinds)
        if torch.Size(input_shape).numel() != expected:
            raise InputError(
                f"kinds={self.kinds!r}: hold {expected} numbers, and inputs have shape {input_shape}. Give channels "
                "and places of each kind as the features have them."
            )
        return self.kinds

    def describe(self) -> str:
        """A clause for statements."""
        kinds = f", {len(self.kinds)} kinds of features together" if len(self.kinds) > 1 else ""
        return f"whitening of channels by noisy second moments with noise multiplier {self.noise_multiplier:.6g}{kinds}"


class Centred(nn.Module):
    """Scales inputs to the length sqrt d, subtracts a mean that does not train, and scales again."""

    mean: Tensor

    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)

    def forward(self, inputs: Tensor) -> Tensor:
        return _of_one_length(_of_one_length(inputs) - self.mean)


class Whitened(nn.Module):
    """Multiplies the channels of each kind with a matrix that does not train, and scales each kind to one length.

    That is sqrt d for d numbers, so that all kinds together have the length of all their numbers.
    """

    def __init__(self, matrices: Sequence[Tensor], kinds: Sequence[Kind]) -> None:
        super().__init__()
        self.turns = nn.ModuleList(ChannelTurn(matrix) for matrix in matrices)
        self.kinds = tuple(kinds)

    def forward(self, inputs: Tensor) -> Tensor:
        parts = _parts(inputs.flatten(1), self.kinds)
        turned = [turn(part.view(-1, *kind)) for turn, part, kind in zip(self.turns, parts, self.kinds, strict=True)]
        return torch.cat([_of_one_length(part).flatten(1) for part in turned], dim=1).view(inputs.shape)


class ChannelTurn(nn.Module):
    """Multiplies the channels of inputs (N, channels, places) with a matrix that does not train."""

    matrix: Tensor

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.matrix.to(inputs.dtype) @ inputs


def _parts(rows: Tensor, kinds: Sequence[Kind]) -> tuple[Tensor, ...]:
    return torch.split(rows, [channels * places for channels, places in kinds], dim=1)


def _of_one_length(inputs: Tensor) -> Tensor:
    """Every input scaled to the root of its number of coordinates; zeros stay zeros."""
    rows = inputs.flatten(1)
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    scaled = rows * (math.sqrt(rows.shape[1]) / lengths.where(lengths > 0, 1.0))
    return scaled.view(inputs.shape)


def _channels(input_shape: tuple[int, ...]) -> int:
    if not input_shape:
        raise InputError("inputs: single numbers have no channels. Give each record a dimension of its own.")
    return input_shape[0]
