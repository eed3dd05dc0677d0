"""From inputs to features at no cost in privacy: fixed maps by name, and directions that public inputs decide."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn

from tacit.core.validation import check_choice
from tacit.models.scatternet import balanced_scattering, upright_scattering

_AT_ONCE = 1024
AS_THEY_ARE = "inputs"
"""The name of the map that changes nothing."""

FIXED_FEATURES: Mapping[str, Callable[[Sequence[int]], nn.Module]] = MappingProxyType(
    {
        AS_THEY_ARE: lambda _input_shape: nn.Identity(),
        "scattering": balanced_scattering,
        "upright-scattering": upright_scattering,
    }
)
"""Builders by name; each takes the shape of one input. None of the maps has a state."""


class FixedFeatures(nn.Module):
    """A fixed map that knows its name, so that a record can say through what a model looks.

    Args:
        name: of `FIXED_FEATURES`.
        input_shape: the shape of one input.
    """

    def __init__(self, name: str, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.name = check_choice("features", name, FIXED_FEATURES)
        self.map = FIXED_FEATURES[name](input_shape)

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.map(inputs)
        return features


def along_directions(rows: Tensor, mean: Tensor, directions: Tensor) -> Tensor:
    r""":math:`\sqrt d\, z / \lVert z \rVert` with :math:`z = D^T (x - m)`, for rows x of inputs or features.

    Args:
        rows: ``[rows, ...]``, as many as fit into memory at once; how it rounds may depend on their number.
        mean: m, of as many numbers as a row has.
        directions: D, ``[numbers, d]``.
    """
    found = (rows.flatten(1).float() - mean) @ directions
    length = torch.linalg.vector_norm(found, dim=1, keepdim=True)
    scaled: Tensor = found * (directions.shape[1] ** 0.5 / length.clamp_min(1e-12))
    return scaled


class PublicMap(nn.Module):
    """The whole way from inputs to `along_directions`: a module that is saved with the model that looks through it.

    Args:
        fixed: a map before it, such as a scattering transform; None takes inputs as they are.
        mean, directions: of `along_directions`; they become part of the state.
    """

    mean: Tensor
    directions: Tensor

    def __init__(self, fixed: nn.Module | None, mean: Tensor, directions: Tensor) -> None:
        super().__init__()
        self.fixed = nn.Identity() if fixed is None else fixed
        self.register_buffer("mean", mean)
        self.register_buffer("directions", directions)

    def forward(self, inputs: Tensor) -> Tensor:
        """``[inputs, directions]``."""
        parts = torch.split(inputs, _AT_ONCE)
        return torch.cat([along_directions(self.fixed(part), self.mean, self.directions) for part in parts])
