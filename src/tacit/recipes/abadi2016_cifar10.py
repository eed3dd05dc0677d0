"""CIFAR-10 of *Deep Learning with Differential Privacy* (Abadi et al., 2016), section 5.3, on cifar10-jpeg.

Crops of 24 x 24 pixels, random in training and central in testing, each brought to mean 0 and variance 1; two 5 x 5
convolutions with 64 channels, ReLU and 2 x 2 maxima; two dense layers of 384 units; lots of 2000. The paper takes the
convolutions from a network that was trained on CIFAR-100 as public data, and trains the dense layers alone: 67, 70 and
73 % at epsilon 2, 4 and 8.

``start=cifar100`` does so where CIFAR-100 is on the machine: the convolutions are learned from it plainly and once,
which reads no private record and so costs nothing (`tacit.recipes.public_convolutions`); in private they stay as they
are. ``start=random`` knows nothing else, and everything trains in private.

``setting=own`` has fewer steps and a smaller bound, which no measurement has chosen, with the noise that privacy loss
distributions find. ``published`` has the paper's noise and bound, and as many steps as its accountant allows for
epsilon, which by privacy loss distributions is less. ``recalibrated`` has the same steps and bound, and the least noise
that keeps to epsilon. On a GPU the network computes in bfloat16: at epsilon 8 the paper's noise takes 46,079 steps.
"""

import dataclasses
from collections.abc import Mapping

from torch import nn

from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.core.validation import check_choice
from tacit.recipes.colour_images import DATASET, half_precision_loss
from tacit.recipes.cropped_network import crop_and_flip, network
from tacit.recipes.knob_rules import check_unchanged
from tacit.recipes.knobs import nearest, with_given
from tacit.recipes.public_convolutions import PublicConvolutions
from tacit.recipes.recipe import DELTA, OWN, PUBLISHED, RECALIBRATED, Build, Configuration, Published, Recipe
from tacit.training.optimizers import schedule_factor

RANDOM, CIFAR100 = "random", "cifar100"


@dataclasses.dataclass(frozen=True)
class _Way:
    """What a setting has."""

    steps: int
    clip: float
    learning_rate: float
    optimizer: str
    schedule: str
    noise: float | None = None


_OWN = _Way(1500, 1.0, 0.5, "momentum", "linear")
# The moments accountant reaches epsilon with the step after the last, with lots of 2000 from 50,000 and delta 1e-5.
_PAPER: Mapping[float, _Way] = {
    epsilon: _Way(steps, 3.0, 0.1, "sgd", "constant", noise=6.0)
    for epsilon, steps in ((2.0, 3509), (4.0, 13_122), (8.0, 46_079))
}


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What may be changed; None is what the setting has for this epsilon.

    ``public_steps`` are those on CIFAR-100, in lots of its own and without noise.
    """

    epsilon: float = 8.0
    setting: str = OWN
    start: str = RANDOM
    batch_size: int = 2000
    steps: int | None = None
    clip: float | None = None
    learning_rate: float | None = None
    optimizer: str | None = None
    schedule: str | None = None
    channels: int = 64
    hidden: int = 384
    average: float | None = None
    public_steps: int = PublicConvolutions().steps
    delta: float = DELTA


def configure(knobs: Knobs) -> Configuration:
    """The run for these knobs."""
    check_choice("setting", knobs.setting, (OWN, PUBLISHED, RECALIBRATED))
    check_choice("start", knobs.start, (RANDOM, CIFAR100))
    way = _way(knobs)
    start = None
    if knobs.start == CIFAR100:
        start = PublicConvolutions(knobs.channels, knobs.hidden, knobs.public_steps)
        start.check()
    else:
        check_unchanged(knobs, ["public_steps"], f"start={RANDOM} takes none")
    return Configuration(
        dataset=DATASET,
        model=_model(knobs, start),
        batch_size=knobs.batch_size,
        steps=way.steps,
        clipping=Flat(way.clip),
        learning_rate=way.learning_rate,
        optimizer=way.optimizer,
        schedule=schedule_factor(way.schedule, way.steps),
        epsilon=None if knobs.setting == PUBLISHED else knobs.epsilon,
        noise_multiplier=way.noise if knobs.setting == PUBLISHED else None,
        average=knobs.average,
        loss=half_precision_loss,
        augment=crop_and_flip,
        start=start,
        delta=knobs.delta,
    )


def _model(knobs: Knobs, start: PublicConvolutions | None) -> Build:
    def build(shape: tuple[int, ...], classes: int) -> nn.Module:
        model = network(shape[0], knobs.channels, knobs.hidden, classes)
        return model if start is None else start.load_into(model)

    return build


def _way(knobs: Knobs) -> _Way:
    if knobs.setting == OWN:
        return with_given(_OWN, knobs)
    if knobs.setting == PUBLISHED and knobs.epsilon not in _PAPER:
        known = ", ".join(f"{epsilon:g}" for epsilon in _PAPER)
        raise InputError(f"epsilon={knobs.epsilon:g}: the paper has {known}. Set one of them, or another setting.")
    return with_given(nearest(_PAPER, knobs.epsilon), knobs)


_NOTE = "convolutions from CIFAR-100, which rows here do without unless they name it; on the original images"

RECIPE = Recipe(
    name="abadi2016-cifar10",
    title="Two convolutional and two dense layers on CIFAR-10 (JPEG copy), with CIFAR-100 as public data or without",
    method="2 conv + 2 dense",
    source="Abadi et al., Deep Learning with Differential Privacy, CCS 2016, section 5.3",
    dataset=DATASET,
    knobs=Knobs(),
    configure=configure,
    published=tuple(
        Published(epsilon, accuracy, "moments", _NOTE) for epsilon, accuracy in ((2.0, 0.67), (4.0, 0.70), (8.0, 0.73))
    ),
)
