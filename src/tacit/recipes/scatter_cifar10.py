"""Handcrafted features on cifar10-jpeg: scattering, private whitening, then a linear or a convolutional classifier.

After Tramèr and Boneh (2021), with what follows changed: an image and its mirror image are one example, whose logits
are averaged; channels are whitened in private, by noise that is in the account, in place of a normalisation; noise is
found by privacy loss distributions.
"""

import dataclasses
import functools
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tacit.clipping import Flat
from tacit.models.scatternet import balanced_scattering, scatter_cnn, scatter_linear
from tacit.recipes.colour_images import DATASET
from tacit.recipes.knobs import nearest
from tacit.recipes.recipe import DELTA, Build, Configuration, Published, Recipe
from tacit.recipes.scatter_linear import Features, centred_and_whitened
from tacit.recipes.tramer2021 import SOURCE
from tacit.training.optimizers import schedule_factor

CNN_CLIP = 0.1
LINEAR_CLIP = 12.5  # a tenth of the length that 243 x 8 x 8 features are given


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


@dataclasses.dataclass(frozen=True)
class Level:
    """What was chosen for an epsilon."""

    batch_size: int
    steps: int
    learning_rate: float
    preparation_noise: float


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What may be changed; None is what was chosen for this epsilon."""

    epsilon: float = 3.0
    batch_size: int | None = None
    steps: int | None = None
    learning_rate: float | None = None
    preparation_noise: float | None = None
    schedule: str = "linear"
    clip: float = LINEAR_CLIP
    whitening: float = 1.0
    average: float | None = None
    delta: float = DELTA


def configure(levels: Mapping[float, Level], classifier: Build, features: Features, knobs: Knobs) -> Configuration:
    """The run for these knobs: features of both sides, centred and whitened, then a classifier."""
    level = nearest(levels, knobs.epsilon)
    given = {field.name: getattr(knobs, field.name) for field in dataclasses.fields(level)}
    level = dataclasses.replace(level, **{name: value for name, value in given.items() if value is not None})
    return Configuration(
        dataset=DATASET,
        model=functools.partial(_over_sides, classifier),
        batch_size=level.batch_size,
        steps=level.steps,
        clipping=Flat(knobs.clip),
        learning_rate=level.learning_rate,
        optimizer="momentum",
        schedule=schedule_factor(knobs.schedule, level.steps),
        epsilon=knobs.epsilon,
        features=lambda shape: BothSides(features(shape)),
        preparations=centred_and_whitened(level.preparation_noise, knobs.whitening),
        average=knobs.average,
        delta=knobs.delta,
    )


def _over_sides(classifier: Build, shape: tuple[int, ...], classes: int) -> nn.Module:
    channels, height, width = shape
    return OverSides(classifier((channels, height // 2, width), classes))


def _recipe(
    kind: str, title: str, accuracy: float, classifier: Build, clip: float, levels: Mapping[float, Level]
) -> Recipe:
    return Recipe(
        name=f"scatter-{kind}-cifar10",
        title=f"Scattering features and {title} on CIFAR-10 (JPEG copy)",
        method=f"ScatterNet + {title}",
        source=SOURCE,
        dataset=DATASET,
        knobs=Knobs(clip=clip),
        configure=functools.partial(configure, levels, classifier, balanced_scattering),
        published=(Published(3.0, accuracy, "rdp", "on the original images"),),
    )


LINEAR_LEVELS: Mapping[float, Level] = {
    1.0: Level(batch_size=8192, steps=200, learning_rate=0.01, preparation_noise=20.0),
    2.0: Level(batch_size=8192, steps=200, learning_rate=0.02, preparation_noise=12.0),
    3.0: Level(batch_size=8192, steps=200, learning_rate=0.03, preparation_noise=10.0),
    8.0: Level(batch_size=16384, steps=200, learning_rate=0.05, preparation_noise=5.0),
}
CNN_LEVELS: Mapping[float, Level] = {
    1.0: Level(batch_size=8192, steps=400, learning_rate=4.0, preparation_noise=20.0),
    2.0: Level(batch_size=8192, steps=400, learning_rate=4.0, preparation_noise=12.0),
    3.0: Level(batch_size=8192, steps=500, learning_rate=4.0, preparation_noise=10.0),
    8.0: Level(batch_size=8192, steps=800, learning_rate=4.0, preparation_noise=5.0),
}
RECIPES = (
    _recipe("linear", "a linear classifier", 0.670, scatter_linear, LINEAR_CLIP, LINEAR_LEVELS),
    _recipe("cnn", "a CNN", 0.693, scatter_cnn, CNN_CLIP, CNN_LEVELS),
)
