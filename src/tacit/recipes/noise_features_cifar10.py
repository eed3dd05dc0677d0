"""Fixed features from noise on cifar10-jpeg: the maps of a prior in the place of scattering features.

The network of `noise_prior_cifar10` has seen random images alone and stays as it is: its last maps, of an image and of
its mirror image, are public features. They are centred and whitened in private and then classified, as
`scatter_cifar10` does it with handcrafted ones. No gradient goes through the network, so that a seed takes seconds.
"""

import dataclasses
import functools
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tacit.models.scatternet import balanced_scattering, scatter_cnn, scatter_linear
from tacit.models.wide_resnet import WideResNet
from tacit.recipes import scatter_cifar10
from tacit.recipes.colour_images import DATASET
from tacit.recipes.noise_prior_cifar10 import SOURCE, find_prior, prior_folder
from tacit.recipes.recipe import Build, Configuration, Recipe
from tacit.recipes.scatter_cifar10 import CNN_CLIP, CNN_LEVELS, LINEAR_CLIP, LINEAR_LEVELS, Level

_AT_ONCE = 1000


class PriorMaps(nn.Module):
    """The last maps of a network whose weights do not train; with scattering features beside them, if those are given.

    Each of the two kinds has mean square 1 over an image.
    """

    def __init__(self, network: WideResNet, scattering: nn.Module | None) -> None:
        super().__init__()
        self.network = network.requires_grad_(False)
        self.scattering = scattering

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        maps = torch.cat([self.network.maps(part) for part in torch.split(images, _AT_ONCE)])
        kinds = [maps] if self.scattering is None else [maps, self.scattering(images)]
        return torch.cat([kind * kind.square().mean(dim=(1, 2, 3), keepdim=True).rsqrt() for kind in kinds], dim=1)


@dataclasses.dataclass(frozen=True)
class Knobs(scatter_cifar10.Knobs):
    """What may be changed; None is what was chosen for this epsilon. ``scattering`` is yes or no."""

    prior: str | None = None
    scattering: str = "no"


def configure(levels: Mapping[float, Level], classifier: Build, knobs: Knobs) -> Configuration:
    """The run for these knobs."""

    def features(shape: tuple[int, ...]) -> nn.Module:
        beside = balanced_scattering(shape) if knobs.scattering == "yes" else None
        return PriorMaps(find_prior(prior_folder(knobs.prior)), beside)

    return scatter_cifar10.configure(levels, classifier, features, knobs)


def _recipe(kind: str, title: str, classifier: Build, clip: float, levels: Mapping[float, Level]) -> Recipe:
    return Recipe(
        name=f"noise-{kind}-cifar10",
        title=f"Fixed features from random processes and {title} on CIFAR-10 (JPEG copy)",
        method=f"noise features + {title}",
        source=SOURCE,
        dataset=DATASET,
        knobs=Knobs(clip=clip),
        configure=functools.partial(configure, levels, classifier),
    )


RECIPES = (
    _recipe("linear", "a linear classifier", scatter_linear, LINEAR_CLIP, LINEAR_LEVELS),
    _recipe("cnn", "a CNN", scatter_cnn, CNN_CLIP, CNN_LEVELS),
)
