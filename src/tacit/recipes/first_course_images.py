"""What a first course on DP-SGD tries: a small ReLU network on MNIST for 15 epochs, on Fashion-MNIST for 10.

Noise multiplier 1 unless epsilon or another noise is asked for. The questions of such a course are sweeps:

- accuracy against epsilon: ``tacit sweep first-course-mnist --over epsilon=0.5,1,2,4,8``;
- epsilon over the epochs at noise 1 is in the history of ``tacit recipe run first-course-mnist``;
- other optimizers: ``--over optimizer=sgd,momentum,rmsprop,adam``;
- the clipping norm and the learning rate: ``--over clip=…``, ``--over learning_rate=…``.

The course left its clipping norm and learning rates open, but for a norm of 5 and larger rates on Fashion-MNIST. Our
rates for SGD, RMSProp and Adam were the best of two or three on held-out training examples of MNIST after two epochs;
that for momentum, the clipping norm, and everything on Fashion-MNIST have not been chosen by measurement.
"""

import dataclasses
import functools
from collections.abc import Mapping

from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.core.validation import check_choice
from tacit.recipes.first_course_cnn import tutorial_cnn
from tacit.recipes.recipe import DELTA, Configuration, Recipe

_NOISE = 1.0
_RATES: Mapping[str, float] = {"sgd": 1.0, "momentum": 0.1, "rmsprop": 0.003, "adam": 0.002}


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What may be changed; without epsilon and noise the noise multiplier is 1."""

    epsilon: float | None = None
    noise_multiplier: float | None = None
    epochs: float = 15
    batch_size: int = 256
    clip: float = 1.0
    optimizer: str = "sgd"
    learning_rate: float | None = None
    average: float | None = None
    delta: float = DELTA


def configure(dataset: str, knobs: Knobs) -> Configuration:
    """The run for these knobs; a learning rate that is left open is the optimizer's."""
    check_choice("optimizer", knobs.optimizer, _RATES)
    if knobs.epsilon is not None and knobs.noise_multiplier is not None:
        raise InputError(
            f"epsilon={knobs.epsilon:g}, noise_multiplier={knobs.noise_multiplier:g}: one follows from the other. "
            "Give one of them."
        )
    noise = _NOISE if knobs.noise_multiplier is None else knobs.noise_multiplier
    return Configuration(
        dataset=dataset,
        model=tutorial_cnn,
        batch_size=knobs.batch_size,
        epochs=knobs.epochs,
        clipping=Flat(knobs.clip),
        learning_rate=_RATES[knobs.optimizer] if knobs.learning_rate is None else knobs.learning_rate,
        optimizer=knobs.optimizer,
        epsilon=knobs.epsilon,
        noise_multiplier=noise if knobs.epsilon is None else None,
        average=knobs.average,
        delta=knobs.delta,
    )


def _recipe(dataset: str, knobs: Knobs) -> Recipe:
    return Recipe(
        name=f"first-course-{dataset}",
        title=f"A first course's CNN on {dataset}, {knobs.epochs:g} epochs",
        method="ReLU CNN",
        source="Boulif and Durand, Deep Learning with Differential Privacy, slides; the network of TensorFlow Privacy",
        dataset=dataset,
        knobs=knobs,
        configure=functools.partial(configure, dataset),
    )


RECIPES = (_recipe("mnist", Knobs()), _recipe("fashion-mnist", Knobs(epochs=10)))
