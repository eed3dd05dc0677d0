"""Private principal components: a projection of the inputs that was learned from noisy second moments."""

import dataclasses

import torch
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_positive
from tacit.mechanisms import Gaussian
from tacit.training.preparation.rows import on_grid, symmetric_matrix, unit_rows, upper_triangle

_GRID = 2.0**-16  # coordinates of a row are whole multiples of this, so that sums of their products are exact
_CHUNK = 4096


@dataclasses.dataclass(frozen=True)
class PrincipalComponents:
    r"""DP-PCA: projects inputs onto the top directions of a noisy second-moment matrix.

    Every input, as a row, is scaled to length 1: :math:`a_i = x_i / \|x_i\|_2`. Released is

    .. math:: A^\top A + E = \sum_i a_i a_i^\top + E,

    where E is symmetric and its entries on and above the diagonal are independent: :math:`N(0, z^2)` on it,
    :math:`N(0, z^2 / 2)` above. Inputs as they are, not scaled, are then projected onto the eigenvectors of the largest
    eigenvalues: post-processing.

    **Sensitivity.** The statistic is the vector of the entries on the diagonal and :math:`\sqrt 2` times those above.
    Adding or removing one record moves it by that vector of :math:`a a^\top`, whose squared length is

    .. math:: \sum_j a_j^4 + 2 \sum_{j < k} a_j^2 a_k^2 = \|a\|_2^4 \le 1.

    So the L2 sensitivity is 1 under add-remove, as under zero-out, and the release is the Gaussian mechanism of noise
    multiplier z. The part below the diagonal is a copy and costs nothing. The published form has :math:`N(0, z^2)`
    above the diagonal too: the same guarantee from more noise, since a row then moves the vector by less than 1.

    Rounding stays within the bound. Coordinates of rows are rounded towards zero to multiples of 2^-16, which makes no
    row longer, so that sums of products are exact in float64, in any order, for up to n = 2^21 records. Multiplying by
    :math:`\sqrt 2` then moves two neighbouring vectors apart by at most :math:`2 n 2^{-53} \le 2^{-31}` in L2 norm,
    since neither is longer than n, and rows are shortened by a factor of 1 - 2^-30 beforehand.

    Edge cases: a row of zeros, or one that is not finite, contributes zero. Where records are fewer than dimensions the
    directions are partly noise.

    Args:
        dimensions: how many directions are kept.
        noise_multiplier: z.
        gain: a public number that the projected inputs are multiplied with.
        whitening: w from 0 to 1: direction j is divided by the power w / 2 of its released eigenvalue, and all are
            scaled so that the sum of the eigenvalues stays. 1 makes all directions equally strong.

    References: Abadi et al., Deep Learning with Differential Privacy, 2016, section 4; Dwork et al., Analyze Gauss,
    2014.
    """

    dimensions: int
    noise_multiplier: float
    gain: float = 1.0
    whitening: float = 0.0

    def __post_init__(self) -> None:
        check_count("dimensions", self.dimensions)
        check_positive("noise_multiplier", self.noise_multiplier)
        check_positive("gain", self.gain)
        if not 0 <= self.whitening <= 1:
            raise InputError(f"whitening={self.whitening!r}: must lie between 0 and 1.")

    @property
    def mechanism(self) -> Gaussian:
        """Gaussian noise for the sensitivity 1."""
        return Gaussian(self.noise_multiplier, 1.0)

    def statistic(self, inputs: Tensor) -> Tensor:
        """The second moments on the diagonal and sqrt 2 times those above it, row by row."""
        rows = inputs.flatten(1)
        size = rows.shape[1]
        self._check_fits(size)
        moments = torch.zeros(size, size, dtype=torch.float64, device=inputs.device)
        for chunk in torch.split(rows, _CHUNK):
            units = on_grid(unit_rows(chunk.double()), _GRID)
            moments.addmm_(units.T, units)
        return upper_triangle(moments)

    def transform(self, released: Tensor, input_shape: tuple[int, ...]) -> nn.Module:
        """The projection onto the top eigenvectors."""
        values, vectors = torch.linalg.eigh(symmetric_matrix(released, torch.Size(input_shape).numel()))
        directions = vectors[:, -self.dimensions :].flip(1)
        factors = self._factors(values[-self.dimensions :].flip(0))
        return Projection((directions * factors).float())

    def _factors(self, eigenvalues: Tensor) -> Tensor:
        """What each direction is multiplied with; noise may leave eigenvalues that are not positive."""
        strengths = eigenvalues.clamp(min=1.0)
        factors = strengths ** (-self.whitening / 2)
        return self.gain * factors * (strengths.sum() / (strengths * factors.square()).sum()).sqrt()

    def describe(self) -> str:
        """A clause for statements."""
        return f"DP-PCA to {self.dimensions} dimensions with noise multiplier {self.noise_multiplier:.6g}"

    def _check_fits(self, size: int) -> None:
        if self.dimensions > size:
            raise InputError(
                f"dimensions={self.dimensions}: must be at most the {size} numbers of an input. Keep fewer dimensions."
            )


class Projection(nn.Module):
    """Flattens inputs and multiplies with a matrix that does not train."""

    directions: Tensor

    def __init__(self, directions: Tensor) -> None:
        super().__init__()
        self.register_buffer("directions", directions)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1) @ self.directions
