"""The runs of Tramèr and Boneh on MNIST, Fashion-MNIST and CIFAR-10, which recipes have as their published setting.

All clip at 0.1 and train by SGD with momentum 0.9 at a constant learning rate. Their epsilon is 3 under Rényi
accounting; the paper's code shuffles where it accounts for Poisson sampling, and bounds the private normalisation by a
median that it takes without noise. Here lots are Poisson sampled and the bounds are public constants, so that epsilon
is true.
"""

import dataclasses
from collections.abc import Mapping

from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.core.validation import check_choice
from tacit.datasets.features import FeatureMap
from tacit.models.scattering import Scattering
from tacit.models.scatternet import scatter_cnn, scatter_features, scatter_linear
from tacit.models.simple import tanh_cnn
from tacit.plan import Preparation
from tacit.recipes.colour_images import DATASET as COLOUR
from tacit.recipes.recipe import DELTA, PUBLISHED, RECALIBRATED, Build, Configuration, Published
from tacit.sampling import steps_for_epochs
from tacit.training.preparation import ChannelNormalisation

SOURCE = "Tramèr and Boneh, Differentially Private Learning Needs Better Features (or Much More Data), ICLR 2021"
EPSILON = 3.0
_EXAMPLES: Mapping[str, int] = {"mnist": 60_000, "fashion-mnist": 60_000, COLOUR: 50_000}
_CLIP = 0.1
# Norms, at most, of the channels' means and mean squares of scattering: a little above what the embedded digits
# have, brought to MNIST's size, and what an even grey, half as bright as white, has in three colours: nothing private.
MEAN_BOUND, SQUARE_BOUND = 0.25, 0.15
COLOUR_MEAN_BOUND, COLOUR_SQUARE_BOUND = 0.9, 0.45
_NETWORKS: Mapping[str, Build] = {"scatter-cnn": scatter_cnn, "scatter-linear": scatter_linear, "tanh-cnn": tanh_cnn}


@dataclasses.dataclass(frozen=True)
class PaperRun:
    """A row of the paper's table.

    Attributes:
        dataset, model: by name; the model one of this file's.
        batch_size, learning_rate, noise_multiplier, epochs: of the training. Where the paper's table is silent, epochs
            are as many as its noise allows at its epsilon, to within 0.07 under the moments accountant.
        accuracy: on the test set, as a fraction.
        groups: of the normalisation within each image, where scattering features are normalised so.
        normalisation_noise: of the normalisation of channels over all images, where it is that.
    """

    dataset: str
    model: str
    batch_size: int
    learning_rate: float
    noise_multiplier: float
    epochs: float
    accuracy: float
    groups: int | None = None
    normalisation_noise: float | None = None

    @property
    def published(self) -> Published:
        """What the paper says came out."""
        return published_figure(self.dataset, self.accuracy)


def published_figure(dataset: str, accuracy: float) -> Published:
    """A figure of the paper on a data set, with what a reader must know of it."""
    images = ", on the original images" if dataset == COLOUR else ""
    note = f"Tramèr and Boneh; fixed lots accounted as Poisson sampled{images}"
    return Published(EPSILON, accuracy, "rdp", note)


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What may be changed; None is the paper's value."""

    epsilon: float = EPSILON
    setting: str = PUBLISHED
    batch_size: int | None = None
    steps: int | None = None
    clip: float | None = None
    learning_rate: float | None = None
    noise_multiplier: float | None = None
    average: float | None = None
    delta: float = DELTA


def configure(run: PaperRun, knobs: Knobs) -> Configuration:
    """The paper's run; with its noise, or with the least that keeps to epsilon by privacy loss distributions."""
    check_choice("setting", knobs.setting, (PUBLISHED, RECALIBRATED))
    _check(knobs)
    batch_size = run.batch_size if knobs.batch_size is None else knobs.batch_size
    given = steps_for_epochs(run.epochs, examples=_EXAMPLES[run.dataset], batch_size=run.batch_size)
    noise = run.noise_multiplier if knobs.noise_multiplier is None else knobs.noise_multiplier
    return Configuration(
        dataset=run.dataset,
        model=_NETWORKS[run.model],
        batch_size=batch_size,
        steps=given if knobs.steps is None else knobs.steps,
        clipping=Flat(_CLIP if knobs.clip is None else knobs.clip),
        learning_rate=run.learning_rate if knobs.learning_rate is None else knobs.learning_rate,
        optimizer="momentum",
        epsilon=knobs.epsilon if knobs.setting == RECALIBRATED else None,
        noise_multiplier=noise if knobs.setting == PUBLISHED else None,
        features=None if run.model == "tanh-cnn" else lambda shape: _features(run, shape),
        preparations=lambda examples: _preparations(run, examples),
        average=knobs.average,
        delta=knobs.delta,
    )


def _check(knobs: Knobs) -> None:
    if knobs.setting == PUBLISHED and knobs.epsilon != EPSILON:
        raise InputError(f"epsilon={knobs.epsilon:g}: the paper has {EPSILON:g}. Set setting={RECALIBRATED} as well.")
    if knobs.setting == RECALIBRATED and knobs.noise_multiplier is not None:
        raise InputError(
            f"noise_multiplier={knobs.noise_multiplier:g}: is found in the setting {RECALIBRATED}. Leave it out."
        )


def _features(run: PaperRun, shape: tuple[int, ...]) -> FeatureMap:
    return Scattering(shape[1:]) if run.groups is None else scatter_features(shape, run.groups)


def _preparations(run: PaperRun, examples: int) -> tuple[Preparation, ...]:
    if run.normalisation_noise is None:
        return ()
    colour = (COLOUR_MEAN_BOUND, COLOUR_SQUARE_BOUND)
    bounds = colour if run.dataset == COLOUR else (MEAN_BOUND, SQUARE_BOUND)
    return (ChannelNormalisation(examples, run.normalisation_noise, *bounds),)
