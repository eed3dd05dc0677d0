"""Kinds of public features of colour images of 32x32 pixels, by name, for a classifier on all of them side by side.

None has seen a photograph, and every image is transformed by itself: they have no privacy cost. An image and its mirror
image are one example, whose features are averaged.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.datasets.random_processes import DeadLeaves
from tacit.models.feature_maps import MeanOfSides, SideBySide, SignedRoot
from tacit.models.patch_filters import PatchFilters, filters_like, gaussian_filters
from tacit.models.scatternet import opponent_scattering
from tacit.models.wide_resnet import WideResNet
from tacit.recipes.noise_prior_cifar10 import find_prior
from tacit.training.preparation.whitening import Kind

_SHAPE = (3, 32, 32)
_FILTERS = 400
_CELLS = 4
_WINDOW = 11  # patches along a side, of 27, that a mean for leaves is taken over
_SMOOTHED = 3  # places along a side of the network's maps that a mean is taken over
_LEAVES = 300  # images whose patches filters are made of
_SEED = 0
_AT_ONCE = 500


@dataclasses.dataclass(frozen=True)
class Features:
    """One kind: what makes it, given where a prior lies; the channels and places that come out; whether the prior is
    part of it.
    """

    make: Callable[[Path], nn.Module]
    kind: Kind
    from_prior: bool = False


class PriorMaps(nn.Module):
    """The last maps of a network whose weights do not train; on a GPU it computes in bfloat16."""

    def __init__(self, network: WideResNet) -> None:
        super().__init__()
        self.network = network.requires_grad_(False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=images.is_cuda):
            maps = [self.network.maps(part) for part in torch.split(images, _AT_ONCE)]
        return torch.cat(maps).float()


def named_features(names: str) -> list[Features]:
    """The kinds of a list such as ``scattering,filters``."""
    unknown = [name for name in names.split(",") if name not in _KINDS]
    if unknown:
        raise InputError(
            f"features={names}: {unknown[0]!r} is none of {', '.join(_KINDS)}. Separate several by commas."
        )
    return [_KINDS[name] for name in names.split(",")]


def side_by_side(kinds: Sequence[Features], prior: Path, input_shape: tuple[int, ...]) -> nn.Module:
    """The map from images of ``input_shape`` to rows with all kinds."""
    if tuple(input_shape) != _SHAPE:
        raise InputError(
            f"input_shape={tuple(input_shape)}: these features are for images of {_SHAPE}. Take another recipe."
        )
    return SideBySide([kind.make(prior) for kind in kinds])


def _scattering(prior: Path) -> nn.Module:
    del prior
    return MeanOfSides(opponent_scattering(_SHAPE))


def _gaussian(prior: Path) -> nn.Module:
    del prior
    return _answers(*gaussian_filters(_FILTERS, torch.Generator().manual_seed(_SEED)), threshold=0.37)


def _leaves(prior: Path) -> nn.Module:
    del prior
    generator = torch.Generator().manual_seed(_SEED)
    images = DeadLeaves(_SHAPE[1]).sample(_LEAVES, generator)
    return _answers(*filters_like(images, _FILTERS, generator), threshold=0.5, window=_WINDOW)


def _answers(filters: Tensor, shift: Tensor, *, threshold: float, window: int | None = None) -> nn.Module:
    answers = PatchFilters(filters, shift, cells=_CELLS, threshold=threshold, window=window)
    return nn.Sequential(MeanOfSides(answers), SignedRoot())


def _network(prior: Path) -> nn.Module:
    return nn.Sequential(MeanOfSides(PriorMaps(find_prior(prior))), nn.AvgPool2d(_SMOOTHED, stride=1))


_KINDS: Mapping[str, Features] = {
    "scattering": Features(_scattering, (243, 64)),
    "filters": Features(_gaussian, (2 * _FILTERS, _CELLS**2)),
    "leaves": Features(_leaves, (2 * _FILTERS, _CELLS**2)),
    "network": Features(_network, (256, 36), from_prior=True),
}
