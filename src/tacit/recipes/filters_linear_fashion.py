"""A linear classifier on scattering and random filters of Fashion-MNIST: our own line beyond `scatter_linear`.

Square roots of balanced scattering, and beside them how patches answer to random filters, which no image has shaped.
Features are centred and partly whitened in private, by noise that is in the account. Learning rates were chosen on
held-out training examples at epsilon 1, 3 and 8; that at 2 is the one of 3, and that at 0.5 is scattering's own. An
epsilon between takes the nearest level's.
"""

import dataclasses
import functools
from collections.abc import Mapping

import torch
from torch import nn

from tacit.core.validation import check_count
from tacit.models.feature_maps import SideBySide, SignedRoot
from tacit.models.patch_filters import PatchFilters, gaussian_filters
from tacit.models.scatternet import balanced_scattering
from tacit.recipes.knobs import nearest, with_given
from tacit.recipes.prepared_linear import Level, prepared_linear
from tacit.recipes.recipe import DELTA, Configuration, Recipe
from tacit.recipes.tramer2021 import SOURCE

_DATASET = "fashion-mnist"
_SCATTERING = (81, 49)  # channels and places
_CELLS = 4
_THRESHOLD = 0.37
_SEED = 0
_LEVELS: Mapping[float, Level] = {  # learning rates are those for features of length 1
    0.5: Level(batch_size=16384, steps=200, learning_rate=160.0, preparation_noise=30.0),
    1.0: Level(batch_size=16384, steps=200, learning_rate=320.0, preparation_noise=20.0),
    2.0: Level(batch_size=16384, steps=200, learning_rate=640.0, preparation_noise=12.0),
    3.0: Level(batch_size=16384, steps=200, learning_rate=640.0, preparation_noise=10.0),
    8.0: Level(batch_size=16384, steps=200, learning_rate=1280.0, preparation_noise=5.0),
}


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What may be changed; None is what was chosen for this epsilon.

    ``learning_rate`` is that for features of length 1.
    """

    epsilon: float = 3.0
    filters: int = 150
    batch_size: int | None = None
    steps: int | None = None
    learning_rate: float | None = None
    preparation_noise: float | None = None
    whitening: float = 0.7
    delta: float = DELTA


def configure(knobs: Knobs) -> Configuration:
    """The run for these knobs."""
    check_count("filters", knobs.filters)
    return prepared_linear(
        _DATASET,
        functools.partial(_features, knobs.filters),
        (_SCATTERING, (2 * knobs.filters, _CELLS**2)),
        with_given(nearest(_LEVELS, knobs.epsilon), knobs),
        epsilon=knobs.epsilon,
        whitening=knobs.whitening,
        delta=knobs.delta,
    )


def _features(filters: int, input_shape: tuple[int, ...]) -> nn.Module:
    drawn = gaussian_filters(filters, torch.Generator().manual_seed(_SEED), channels=1)
    answers = PatchFilters(*drawn, cells=_CELLS, threshold=_THRESHOLD)
    return SideBySide(
        [nn.Sequential(balanced_scattering(input_shape), SignedRoot()), nn.Sequential(answers, SignedRoot())]
    )


RECIPE = Recipe(
    name="filters-linear-fashion-mnist",
    title="Scattering features, random filters and a linear classifier on Fashion-MNIST",
    method="ScatterNet, random filters + linear",
    source=f"Our own line, after {SOURCE}",
    dataset=_DATASET,
    knobs=Knobs(),
    configure=configure,
    published=(),
)
