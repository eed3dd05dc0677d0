"""Handcrafted features on cifar10-jpeg: scattering, private whitening, then a convolutional classifier.

After Tramèr and Boneh (2021), with what follows changed: an image and its mirror image are one example, whose logits
are averaged; scattering is taken of opponent colours, and roots of it; channels are partly whitened in private, by
noise that is in the account, in place of a normalisation; noise is found by privacy loss distributions.
"""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tacit.clipping import Flat
from tacit.models.scatternet import opponent_scattering, scatter_cnn
from tacit.recipes.colour_images import DATASET, half_precision_loss
from tacit.recipes.knobs import nearest, with_given
from tacit.recipes.prepared_linear import Level
from tacit.recipes.recipe import DELTA, Configuration, Recipe
from tacit.recipes.scatter_linear import centred_and_whitened
from tacit.recipes.tramer2021 import SOURCE, published_figure
from tacit.training.optimizers import schedule_factor


class BothSides(nn.Module):
    """Features (N, C, 2 H, W) of images and of their mirror images, one above the other."""

    def __init__(self, features: nn.Module) -> None:
        super().__init__()
        self.features = features

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([self.features(images), self.features(images.flip(3))], dim=2)


class OverSides(nn.Module):
    """The mean of a classifier's logits over the two halves of features (N, C, 2 H, W)."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, features: Tensor) -> Tensor:
        sides = torch.stack(features.chunk(2, dim=2), dim=1)
        logits: Tensor = self.classifier(sides.flatten(0, 1))
        return logits.view(len(features), 2, logits.shape[1]).mean(dim=1)


# Rates of 1, 2, 4 and 8 were compared at epsilon 3 on held-out images, and 8 was best; nothing else was compared.
_LEVELS: Mapping[float, Level] = {
    1.0: Level(batch_size=8192, steps=400, learning_rate=4.0, preparation_noise=20.0),
    2.0: Level(batch_size=8192, steps=400, learning_rate=4.0, preparation_noise=12.0),
    3.0: Level(batch_size=8192, steps=500, learning_rate=8.0, preparation_noise=10.0),
    8.0: Level(batch_size=8192, steps=800, learning_rate=8.0, preparation_noise=5.0),
}


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What may be changed; None is what the level of this epsilon has."""

    epsilon: float = 3.0
    batch_size: int | None = None
    steps: int | None = None
    learning_rate: float | None = None
    preparation_noise: float | None = None
    schedule: str = "linear"
    clip: float = 0.1
    whitening: float = 0.7
    average: float | None = None
    delta: float = DELTA


def configure(knobs: Knobs) -> Configuration:
    """The run for these knobs: features of both sides, centred and whitened, then the network."""
    level = with_given(nearest(_LEVELS, knobs.epsilon), knobs)
    return Configuration(
        dataset=DATASET,
        model=_over_sides,
        batch_size=level.batch_size,
        steps=level.steps,
        clipping=Flat(knobs.clip),
        learning_rate=level.learning_rate,
        optimizer="momentum",
        schedule=schedule_factor(knobs.schedule, level.steps),
        epsilon=knobs.epsilon,
        features=lambda shape: BothSides(opponent_scattering(shape)),
        preparations=centred_and_whitened(level.preparation_noise, knobs.whitening),
        preparation_knob="preparation_noise",
        average=knobs.average,
        loss=half_precision_loss,
        delta=knobs.delta,
    )


def _over_sides(shape: tuple[int, ...], classes: int) -> nn.Module:
    channels, height, width = shape
    return OverSides(scatter_cnn((channels, height // 2, width), classes))


RECIPE = Recipe(
    name="scatter-cnn-cifar10",
    title="Scattering features and a CNN on CIFAR-10 (JPEG copy)",
    method="ScatterNet + CNN",
    source=SOURCE,
    dataset=DATASET,
    knobs=Knobs(),
    configure=configure,
    published=(published_figure(DATASET, 0.693),),
)
