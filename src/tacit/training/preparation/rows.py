"""Records as rows of bounded length, in numbers whose sums are exact."""

import math

import torch
from torch import Tensor


def unit_rows(rows: Tensor) -> Tensor:
    """Rows of length 1; those of length zero or not finite become zero."""
    largest = rows.abs().amax(1, keepdim=True)  # not finite where any coordinate is not
    usable = largest.isfinite() & (largest > 0)
    rows = rows.where(usable, 0.0) / largest.where(usable, 1.0)  # first, so that no square overflows or vanishes
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / lengths.where(usable, 1.0)


def shortened_rows(rows: Tensor) -> Tensor:
    """Rows as they are up to length 1, and of length 1 where they are longer; those that are not finite become zero."""
    rows = rows.where(rows.isfinite().all(1, keepdim=True), 0.0)
    largest = rows.abs().amax(1, keepdim=True).clamp_min(1.0)
    scaled = rows / largest
    lengths: Tensor = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    # The row's own length is largest * lengths.
    return scaled * torch.minimum(largest, 1 / lengths.clamp_min(torch.finfo(rows.dtype).tiny))


def on_grid(rows: Tensor, grid: float) -> Tensor:
    """Coordinates rounded towards zero to multiples of the grid; rows of length 1 are no longer than 1 - 2^-31.

    The margin is more than what float64 does to norms, and than multiplying exact sums of up to 2^21 records by the
    root of 2 does to their distance.
    """
    return (rows * ((1 - 2.0**-30) / grid)).trunc() * grid


def upper_triangle(matrix: Tensor) -> Tensor:
    """A symmetric matrix as a vector of the same norm: its diagonal, and sqrt 2 times what is above, row by row."""
    rows, columns = torch.triu_indices(*matrix.shape, device=matrix.device)
    return matrix[rows, columns] * _weights(rows, columns)


def symmetric_matrix(vector: Tensor, size: int) -> Tensor:
    """The matrix that `upper_triangle` made a vector of."""
    rows, columns = torch.triu_indices(size, size, device=vector.device)
    matrix = torch.zeros(size, size, dtype=torch.float64, device=vector.device)
    matrix[rows, columns] = vector.double() / _weights(rows, columns)
    return matrix + matrix.triu(1).T


def _weights(rows: Tensor, columns: Tensor) -> Tensor:
    return 1 + (math.sqrt(2) - 1) * (rows != columns).double()
