"""A linear classifier on public features that are centred and partly whitened in private: what such recipes share."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

from torch import nn

from tacit.clipping import Flat
from tacit.models.scatternet import linear_from_zero
from tacit.plan import Preparation
from tacit.recipes.knob_rules import check_whitened
from tacit.recipes.recipe import Configuration
from tacit.training.optimizers import schedule_factor
from tacit.training.preparation import Centring, ChannelWhitening
from tacit.training.preparation.whitening import Kind

_CLIP_SHARE = 0.1  # of the length of an image's features


@dataclasses.dataclass(frozen=True)
class Level:
    """What a classifier on prepared features has for an epsilon."""

    batch_size: int
    steps: int
    learning_rate: float
    preparation_noise: float


def prepared_linear(
    dataset: str,
    features: Callable[[tuple[int, ...]], nn.Module],
    kinds: Sequence[Kind],
    level: Level,
    *,
    epsilon: float,
    whitening: float,
    delta: float,
) -> Configuration:
    """A few hundred large lots while the learning rate falls to zero, from a classifier that starts at zero.

    Args:
        dataset: its name.
        features: for the shape of an image, the public map to rows with all kinds of features side by side.
        kinds: channels and places of each.
        level: with the learning rate for features of length 1.
        epsilon, delta: of everything, the two private looks at the features included.
        whitening: how far features are whitened, above 0 and up to 1.
    """
    check_whitened(whitening)
    size = sum(channels * places for channels, places in kinds)
    return Configuration(
        dataset=dataset,
        model=linear_from_zero,
        batch_size=level.batch_size,
        steps=level.steps,
        clipping=Flat(_CLIP_SHARE * size**0.5),
        learning_rate=level.learning_rate / size,
        optimizer="momentum",
        schedule=schedule_factor("linear", level.steps),
        epsilon=epsilon,
        features=features,
        preparations=functools.partial(_preparations, level.preparation_noise, whitening, tuple(kinds)),
        preparation_knob="preparation_noise",
        delta=delta,
    )


def _preparations(noise: float, whitening: float, kinds: tuple[Kind, ...], examples: int) -> tuple[Preparation, ...]:
    return Centring(examples, noise), ChannelWhitening(examples, noise, whitening, kinds)
