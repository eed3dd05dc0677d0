r"""The tanh filter in place of clipping on images: what it reaches, what was claimed for it, and what is true.

Lots of 256, microbatches of one record, noise of standard deviation 1.1 on the sum, as in the paper's table 1, on MNIST
and CIFAR-10; the network and the 15 epochs are those of the tutorial that it starts from, on CIFAR-10 with three input
channels, since the paper does not say. Nor does it name a learning rate, and no measurement has chosen ours. Three
settings, all with that same noise:

- ``published``: the filter :math:`c \tanh(g / k)` alone, as the paper runs it. The epsilon of the result is the true
  one, for the sensitivity :math:`c \sqrt n`;
- ``sound``: the filter, then a norm bound, 1 by default, so that the noise multiplier is what the paper took it for;
- ``plain``: DP-SGD without the filter, clipped at that bound.

Every result has three epsilons beside it: the paper's claim, the true one of its own mechanism, and that of the sound
variant (`tacit.accounting.tanh_filter_statements`). Grids over c and k are sweeps:
``tacit sweep tanh-filter-mnist --over k=0.1,1,10 --over c=1,2,4``.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping

from tacit.accounting import tanh_filter_statements
from tacit.clipping import Clipping, Flat, Tanh
from tacit.core.validation import check_choice, check_positive
from tacit.plan import DPSGD
from tacit.recipes.colour_images import DATASET
from tacit.recipes.first_course_cnn import count_parameters, tutorial_cnn
from tacit.recipes.knob_rules import check_unchanged
from tacit.recipes.recipe import DELTA, PUBLISHED, Configuration, Recipe

SOUND, PLAIN = "sound", "plain"


@dataclasses.dataclass(frozen=True)
class _Images:
    """A set of images, and the shape of one."""

    name: str
    dataset: str
    title: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What may be changed; ``noise`` is the standard deviation on the sum of a lot."""

    setting: str = PUBLISHED
    c: float = 1.0
    k: float = 1.0
    bound: float = 1.0
    noise: float = 1.1
    batch_size: int = 256
    epochs: float = 15
    optimizer: str = "sgd"
    learning_rate: float = 0.25
    delta: float = DELTA


def configure(images: _Images, knobs: Knobs) -> Configuration:
    """The run for these knobs."""
    check_choice("setting", knobs.setting, (PUBLISHED, SOUND, PLAIN))
    check_positive("noise", knobs.noise)
    if knobs.setting == PLAIN:
        check_unchanged(knobs, ("c", "k"), f"setting={PLAIN} has no filter")
    clipping, sensitivity = _clipping(images, knobs)
    return Configuration(
        dataset=images.dataset,
        model=tutorial_cnn,
        batch_size=knobs.batch_size,
        epochs=knobs.epochs,
        clipping=clipping,
        learning_rate=knobs.learning_rate,
        optimizer=knobs.optimizer,
        noise_multiplier=knobs.noise / sensitivity,
        delta=knobs.delta,
    )


def _clipping(images: _Images, knobs: Knobs) -> tuple[Clipping, float]:
    """The rule, and how far one record moves the sum."""
    if knobs.setting == PUBLISHED:
        return Tanh(knobs.c, knobs.k), knobs.c * math.sqrt(count_parameters(images.shape))
    return Flat(knobs.bound) if knobs.setting == PLAIN else Tanh(knobs.c, knobs.k, knobs.bound), knobs.bound


def three_epsilons(images: _Images, knobs: Knobs, plan: DPSGD) -> Mapping[str, float]:
    """Claimed, actual and sound, for the noise, the sampling and the steps of the plan."""
    statements = tanh_filter_statements(
        sampling_rate=plan.sampling_rate,
        noise_std=knobs.noise,
        steps=plan.steps,
        delta=plan.delta,
        numbers=count_parameters(images.shape),
        c=knobs.c,
        bound=knobs.bound,
    )
    return {
        "claimed": statements.claimed.epsilon,
        "actual": statements.actual.epsilon,
        "sound": statements.sound.epsilon,
    }


def _recipe(images: _Images) -> Recipe:
    return Recipe(
        name=f"tanh-filter-{images.name}",
        title=f"The tanh filter in place of clipping, on {images.title}, and its three epsilons",
        method="tanh filter",
        source="Amian, Improving the Algorithm of Deep Learning with Differential Privacy, 2021",
        dataset=images.dataset,
        knobs=Knobs(),
        configure=functools.partial(configure, images),
        epsilons=functools.partial(three_epsilons, images),
    )


RECIPES = (
    _recipe(_Images("mnist", "mnist", "MNIST", (1, 28, 28))),
    _recipe(_Images("cifar10", DATASET, "CIFAR-10 (JPEG copy)", (3, 32, 32))),
)
