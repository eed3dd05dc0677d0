"""A linear classifier on fixed features of cifar10-jpeg: handcrafted ones, random filters, and priors from noise.

After Tramèr and Boneh (2021), with what follows changed: scattering is taken of opponent colours, and roots of it; an
image and its mirror image are one example; features are centred and partly whitened in private, by noise that is in the
account, in place of a normalisation; noise is found by privacy loss distributions. Three lines:

- ``scatter-linear-cifar10``: scattering alone.
- ``filters-linear-cifar10``: random filters beside it, which no image has shaped, not even a made-up one.
- ``noise-linear-cifar10``: filters made of patches of dead leaves, images of a random process, and the maps of a
  network that learned from such images (`noise_prior_cifar10`). No real image has shaped them either.

Features, whitening, steps and learning rates were chosen on held-out training examples: those of the first two lines
together, those of the third by itself at 1 and 8, with learning rates for 2 and 3 chosen or read between them. An
epsilon between takes the nearest level's.
"""

import dataclasses
import functools
from collections.abc import Mapping

from tacit.recipes.colour_images import DATASET
from tacit.recipes.fixed_features import named_features, side_by_side
from tacit.recipes.knob_rules import check_unchanged
from tacit.recipes.knobs import nearest, with_given
from tacit.recipes.noise_prior_cifar10 import SOURCE as PRIOR_SOURCE
from tacit.recipes.noise_prior_cifar10 import NoiseStart, prior_folder
from tacit.recipes.prepared_linear import Level, prepared_linear
from tacit.recipes.recipe import DELTA, Configuration, Published, Recipe
from tacit.recipes.tramer2021 import SOURCE, published_figure

_LEVELS: Mapping[float, Level] = {  # learning rates are those for features of length 1
    1.0: Level(batch_size=16384, steps=200, learning_rate=160.0, preparation_noise=20.0),
    2.0: Level(batch_size=16384, steps=200, learning_rate=320.0, preparation_noise=12.0),
    3.0: Level(batch_size=16384, steps=200, learning_rate=320.0, preparation_noise=10.0),
    8.0: Level(batch_size=16384, steps=200, learning_rate=640.0, preparation_noise=5.0),
}
_LEVELS_OF_NOISE: Mapping[float, Level] = {  # for features with a prior, whitened in full
    1.0: Level(batch_size=16384, steps=400, learning_rate=110.0, preparation_noise=20.0),
    2.0: Level(batch_size=16384, steps=400, learning_rate=220.0, preparation_noise=12.0),
    3.0: Level(batch_size=16384, steps=400, learning_rate=280.0, preparation_noise=10.0),
    8.0: Level(batch_size=16384, steps=400, learning_rate=500.0, preparation_noise=5.0),
}


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What may be changed; None is what was chosen for this epsilon.

    ``features`` are kinds of `fixed_features`, separated by commas; ``learning_rate`` is that for features of length 1.
    """

    epsilon: float = 3.0
    features: str = "scattering"
    batch_size: int | None = None
    steps: int | None = None
    learning_rate: float | None = None
    preparation_noise: float | None = None
    whitening: float = 0.7
    prior: str | None = None
    delta: float = DELTA


def configure(levels: Mapping[float, Level], knobs: Knobs) -> Configuration:
    """The run for these knobs, with the nearest of the levels where they say nothing."""
    features, prior = named_features(knobs.features), prior_folder(knobs.prior)
    configuration = prepared_linear(
        DATASET,
        functools.partial(side_by_side, features, prior),
        [kind.kind for kind in features],
        with_given(nearest(levels, knobs.epsilon), knobs),
        epsilon=knobs.epsilon,
        whitening=knobs.whitening,
        delta=knobs.delta,
    )
    learned = any(kind.from_prior for kind in features)
    if not learned:
        check_unchanged(knobs, ["prior"], f"features={knobs.features} take none")
    return dataclasses.replace(configuration, start=NoiseStart(prior) if learned else None)


def _recipe(
    name: str,
    title: str,
    source: str,
    knobs: Knobs,
    levels: Mapping[float, Level],
    published: tuple[Published, ...] = (),
) -> Recipe:
    return Recipe(
        name=f"{name}-linear-cifar10",
        title=f"{title} and a linear classifier on CIFAR-10 (JPEG copy)",
        method=f"{title} + linear",
        source=source,
        dataset=DATASET,
        knobs=knobs,
        configure=functools.partial(configure, levels),
        published=published,
    )


RECIPES = (
    _recipe(
        "scatter", "ScatterNet", SOURCE, Knobs(features="scattering"), _LEVELS, (published_figure(DATASET, 0.670),)
    ),
    _recipe(
        "filters",
        "ScatterNet, random filters",
        f"Our own line, after {SOURCE}",
        Knobs(features="scattering,filters"),
        _LEVELS,
    ),
    _recipe(
        "noise",
        "ScatterNet, noise prior",
        f"Our own line, after {PRIOR_SOURCE}",
        Knobs(features="scattering,leaves,network", whitening=1.0),
        _LEVELS_OF_NOISE,
    ),
)
