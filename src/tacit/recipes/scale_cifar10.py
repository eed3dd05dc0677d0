"""Scale: a wide residual network from scratch, as De et al. (2022) train it, on cifar10-jpeg.

WRN-16-4 with weight standardisation and group normalisation; several random views of an image averaged before clipping;
large lots, plain gradient descent, a moving average of the weights. Three settings:

- ``own``, the default: fewer views and fewer, larger steps, so that a seed takes minutes on one GPU; on the skip
  connections norm-relu-conv, the order that Bao and Bindschaedler found best; noise by privacy loss distributions.
  Views and steps are as many as fit in those minutes; no measurement has chosen these or the learning rates.
- ``published``: lots of 4096, 16 views, learning rate 2, with the noise and the steps of De et al. for their levels of
  epsilon, 1, 2, 3, 4, 6 and 8, by their layer order.
- ``recalibrated``: the same with the least noise that keeps to epsilon by privacy loss distributions.

``mixtures`` adds mixtures of an image's own views (DP-Mix, Bao et al. 2023).
"""

import dataclasses
from collections.abc import Mapping

from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.core.validation import check_choice
from tacit.models.wide_resnet import Order, check_architecture, wide_resnet
from tacit.recipes.colour_images import DATASET, half_precision_loss, random_views
from tacit.recipes.knobs import nearest, with_given
from tacit.recipes.recipe import DELTA, OWN, PUBLISHED, RECALIBRATED, Configuration, Published, Recipe
from tacit.training.optimizers import schedule_factor
from tacit.training.views import over_views

_VIEWS_AT_ONCE = 4400  # what a GPU works on at once: about 40 GB for WRN-16-4


@dataclasses.dataclass(frozen=True)
class _Level:
    """What a setting has for an epsilon."""

    steps: int
    multiplicity: int
    learning_rate: float
    average: float
    shortcut: Order
    noise: float | None = None


def _published(noise: float, steps: int) -> _Level:
    return _Level(steps, 16, 2.0, 0.9999, "relu-norm-conv", noise)


_PUBLISHED: Mapping[float, _Level] = {
    1.0: _published(10.0, 875),
    2.0: _published(6.0, 1125),
    3.0: _published(5.0, 1593),
    4.0: _published(4.0, 1687),
    6.0: _published(3.0, 1843),
    8.0: _published(3.0, 2468),
}
_OWN: Mapping[float, _Level] = {
    1.0: _Level(175, 4, 2.0, 0.99, "norm-relu-conv"),
    2.0: _Level(235, 3, 2.0, 0.99, "norm-relu-conv"),
    3.0: _Level(350, 2, 2.0, 0.99, "norm-relu-conv"),
    8.0: _Level(350, 2, 4.0, 0.99, "norm-relu-conv"),
}


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What may be changed; None is what the setting has for this epsilon."""

    epsilon: float = 8.0
    setting: str = OWN
    steps: int | None = None
    multiplicity: int | None = None
    mixtures: int = 0
    learning_rate: float | None = None
    schedule: str = "constant"
    average: float | None = None
    shortcut: str | None = None
    batch_size: int = 4096
    clip: float = 1.0
    depth: int = 16
    width: int = 4
    delta: float = DELTA


def configure(knobs: Knobs) -> Configuration:
    """The run for these knobs."""
    level = _level(knobs)
    check_architecture(knobs.depth, knobs.width, level.shortcut)
    return Configuration(
        dataset=DATASET,
        model=lambda shape, classes: wide_resnet(
            shape, classes, depth=knobs.depth, width=knobs.width, shortcut=level.shortcut, centre=True
        ),
        batch_size=knobs.batch_size,
        steps=level.steps,
        clipping=Flat(knobs.clip),
        learning_rate=level.learning_rate,
        schedule=schedule_factor(knobs.schedule, level.steps),
        epsilon=None if knobs.setting == PUBLISHED else knobs.epsilon,
        noise_multiplier=level.noise if knobs.setting == PUBLISHED else None,
        average=level.average,
        loss=over_views(half_precision_loss),
        augment=random_views(level.multiplicity, mixtures=knobs.mixtures),
        at_once=examples_at_once(knobs.batch_size, level.multiplicity + knobs.mixtures),
        delta=knobs.delta,
    )


def examples_at_once(batch_size: int, views: int) -> int:
    """An even part of a lot, with room for a lot larger than expected, that a GPU holds with all views."""
    lot = batch_size + 4 * int(batch_size**0.5)
    parts = -(-lot * views // _VIEWS_AT_ONCE)
    return -(-lot // parts // 8) * 8


def _level(knobs: Knobs) -> _Level:
    check_choice("setting", knobs.setting, (OWN, PUBLISHED, RECALIBRATED))
    levels = _OWN if knobs.setting == OWN else _PUBLISHED
    if knobs.setting == PUBLISHED and knobs.epsilon not in levels:
        known = ", ".join(f"{epsilon:g}" for epsilon in levels)
        raise InputError(f"epsilon={knobs.epsilon:g}: the paper has {known}. Set one of them, or another setting.")
    return with_given(nearest(levels, knobs.epsilon), knobs)


RECIPE = Recipe(
    name="scale-cifar10",
    title="A wide residual network from scratch on CIFAR-10 (JPEG copy)",
    method="WRN-16-4, views",
    source=(
        "De et al., Unlocking High-Accuracy Differentially Private Image Classification through Scale, 2022, as Bao "
        "and Bindschaedler ran it again, ACSAC 2024"
    ),
    dataset=DATASET,
    knobs=Knobs(),
    configure=configure,
    published=tuple(
        Published(epsilon, accuracy, "rdp", "on the original images")
        for epsilon, accuracy in ((1.0, 0.568), (2.0, 0.629), (4.0, 0.6945), (8.0, 0.7874))
    ),
)
