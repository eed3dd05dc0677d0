"""Logistic regression on scattering features: handcrafted features of Tramèr and Boneh, on MNIST and Fashion-MNIST.

Three settings. ``own`` is the default: digits are made upright, each by itself; the features' orders are balanced by
public factors, then centred and partly whitened in private; all images get one length, and a classifier that starts at
zero takes a few hundred large lots while its learning rate falls to zero. It has been chosen on held-out training
examples for each level of epsilon; an epsilon between takes the nearest level's. ``published`` is the paper's run with
its noise, and ``recalibrated`` the same with the least noise that keeps to epsilon by privacy loss distributions.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

from torch import nn

from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.core.validation import check_choice
from tacit.models.scatternet import balanced_scattering, scatter_linear, upright_scattering
from tacit.plan import Preparation
from tacit.recipes import tramer2021
from tacit.recipes.knob_rules import check_unchanged, check_whitened
from tacit.recipes.knobs import nearest
from tacit.recipes.recipe import OWN, PUBLISHED, RECALIBRATED, Configuration, Recipe
from tacit.recipes.tramer2021 import PaperRun
from tacit.training.optimizers import schedule_factor
from tacit.training.preparation import Centring, ChannelWhitening

_CLIP = 6.3  # a tenth of the length that 81 x 7 x 7 features are given
_BATCH_SIZE = 8192
_STEPS = 400
_OWN_KNOBS = ("preparation_noise", "whitening")


@dataclasses.dataclass(frozen=True)
class _Level:
    """What suits an epsilon."""

    preparation_noise: float
    learning_rate: float


Levels = Mapping[float, _Level]
Features = Callable[[tuple[int, ...]], nn.Module]
"""For the shape of an image, a public map of images to features (N, C, H, W)."""


@dataclasses.dataclass(frozen=True)
class Knobs(tramer2021.Knobs):
    """What may be changed; None is what the setting has. The last two are of the setting ``own``."""

    setting: str = OWN
    preparation_noise: float | None = None
    whitening: float = 0.7


def configure(features: Features, levels: Levels, run: PaperRun, knobs: Knobs) -> Configuration:
    """The run for these knobs."""
    check_choice("setting", knobs.setting, (OWN, PUBLISHED, RECALIBRATED))
    if knobs.setting != OWN:
        check_unchanged(knobs, _OWN_KNOBS, f"means nothing in setting={knobs.setting}")
        return tramer2021.configure(run, knobs)
    if knobs.noise_multiplier is not None:
        raise InputError(f"noise_multiplier={knobs.noise_multiplier:g}: is found in the setting {OWN}. Leave it out.")
    level = nearest(levels, knobs.epsilon)
    noise = level.preparation_noise if knobs.preparation_noise is None else knobs.preparation_noise
    steps = _STEPS if knobs.steps is None else knobs.steps
    return Configuration(
        dataset=run.dataset,
        model=scatter_linear,
        batch_size=_BATCH_SIZE if knobs.batch_size is None else knobs.batch_size,
        steps=steps,
        clipping=Flat(_CLIP if knobs.clip is None else knobs.clip),
        learning_rate=level.learning_rate if knobs.learning_rate is None else knobs.learning_rate,
        optimizer="momentum",
        schedule=schedule_factor("linear", steps),
        epsilon=knobs.epsilon,
        features=features,
        preparations=centred_and_whitened(noise, knobs.whitening),
        preparation_knob="preparation_noise",
        average=knobs.average,
        delta=knobs.delta,
    )


def centred_and_whitened(noise: float, whitening: float) -> Callable[[int], tuple[Preparation, ...]]:
    """Two private looks at the features, for a public number of examples."""
    check_whitened(whitening)
    return lambda examples: (Centring(examples, noise), ChannelWhitening(examples, noise, whitening))


def _recipe(title: str, features: Features, levels: Levels, run: PaperRun) -> Recipe:
    return Recipe(
        name=f"scatter-linear-{run.dataset}",
        title=f"Scattering features and a linear classifier on {title}",
        method="ScatterNet + linear",
        source=tramer2021.SOURCE,
        dataset=run.dataset,
        knobs=Knobs(),
        configure=functools.partial(configure, features, levels, run),
        published=(run.published,),
    )


RECIPES = (
    _recipe(
        "MNIST",
        upright_scattering,
        {
            0.5: _Level(preparation_noise=30.0, learning_rate=0.0101),
            1.0: _Level(preparation_noise=20.0, learning_rate=0.0151),
            2.0: _Level(preparation_noise=12.0, learning_rate=0.0403),
            3.0: _Level(preparation_noise=10.0, learning_rate=0.0403),
            8.0: _Level(preparation_noise=5.0, learning_rate=0.06),
        },
        PaperRun("mnist", "scatter-linear", 4096, 8.0, 3.04, epochs=40, accuracy=0.987, normalisation_noise=8.0),
    ),
    _recipe(
        "Fashion-MNIST",
        balanced_scattering,
        {
            0.5: _Level(preparation_noise=30.0, learning_rate=0.0151),
            1.0: _Level(preparation_noise=20.0, learning_rate=0.0302),
            2.0: _Level(preparation_noise=12.0, learning_rate=0.0454),
            3.0: _Level(preparation_noise=10.0, learning_rate=0.0605),
            8.0: _Level(preparation_noise=5.0, learning_rate=0.1),
        },
        PaperRun("fashion-mnist", "scatter-linear", 8192, 16.0, 4.05, epochs=40, accuracy=0.897, groups=27),
    ),
)
