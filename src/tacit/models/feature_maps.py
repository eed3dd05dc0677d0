"""Small public maps that features of images are put together from; each sees one image at a time."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tacit.core.errors import InputError


class OpponentColours(nn.Module):
    """Red, green and blue as brightness, red against blue, and green against both: orthogonal, each of length 1.

    What is not linear after it, such as the modulus of a wavelet coefficient, then sees edges of colour apart from
    edges of light.
    """

    matrix: Tensor

    def __init__(self) -> None:
        super().__init__()
        rows = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]])
        rows = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        self.register_buffer("matrix", rows, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        if images.dim() != 4 or images.shape[1] != 3:
            raise InputError(f"images: of shape {tuple(images.shape)}, must be (images, 3, height, width).")
        return torch.einsum("oc,nchw->nohw", self.matrix.to(images.dtype), images)


class SignedRoot(nn.Module):
    """The root of every number's size, with its sign: large features count for less."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.sign() * inputs.abs().sqrt()


class MeanOfSides(nn.Module):
    """The mean of an image's features and of its mirror image's: both sides are one example."""

    def __init__(self, features: nn.Module) -> None:
        super().__init__()
        self.features = features

    def forward(self, images: Tensor) -> Tensor:
        return torch.lerp(self.features(images), self.features(images.flip(3)), 0.5)


class SideBySide(nn.Module):
    """Several kinds of features as one row (N, D), each kind of mean square 1 in every image; zeros stay zeros."""

    def __init__(self, kinds: Sequence[nn.Module]) -> None:
        super().__init__()
        self.kinds = nn.ModuleList(kinds)

    def forward(self, images: Tensor) -> Tensor:
        rows = [kind(images).flatten(1) for kind in self.kinds]
        lengths = [torch.linalg.vector_norm(row, dim=1, keepdim=True) for row in rows]
        return torch.cat(
            [
                row * (math.sqrt(row.shape[1]) / length.where(length > 0, 1.0))
                for row, length in zip(rows, lengths, strict=True)
            ],
            dim=1,
        )
