"""How to train on a data set: everything that is tuned, apart from the budget; with good defaults for each set."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tacit.clipping import Automatic, Clipping, Flat, PerLayer, Tanh
from tacit.core.errors import InputError
from tacit.core.validation import check_choice, check_positive
from tacit.datasets import DataSet
from tacit.models import MODELS, default_model
from tacit.sampling import SAMPLERS, steps_for_epochs
from tacit.training.optimizers import OPTIMIZERS, SCHEDULES

CLIPPINGS: Mapping[str, Callable[["Settings"], Clipping]] = {
    "flat": lambda settings: Flat(settings.clip),
    "per-layer": lambda settings: PerLayer(settings.clip),
    "automatic": lambda settings: Automatic(settings.clip),
    "tanh": lambda settings: Tanh(settings.tanh_range, settings.tanh_expansion, bound=settings.clip),
    "tanh-alone": lambda settings: Tanh(settings.tanh_range, settings.tanh_expansion),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """A way to train.

    Attributes:
        model: a name of `tacit.models.MODELS`.
        batch_size: the expected lot size.
        epochs, steps: how long; exactly one of them is given.
        clip: the norm that one example's gradient is clipped to.
        clipping: ``flat``, ``per-layer``, ``automatic``; ``tanh``, which filters gradients before they are clipped, or
            ``tanh-alone``, which clips at no norm but the largest that a filtered gradient can have.
        tanh_range, tanh_expansion: c and k of the filter.
        optimizer: a name of `tacit.training.optimizers.OPTIMIZERS`.
        learning_rate: of the optimizer.
        schedule: ``constant``, ``linear`` or ``cosine``.
        average: decay of the average of the weights; ``None`` for the last weights.
        sampler: a name of `tacit.sampling.SAMPLERS`.
    """

    model: str
    batch_size: int
    learning_rate: float
    epochs: float | None = None
    steps: int | None = None
    clip: float = 1.0
    clipping: str = "flat"
    optimizer: str = "momentum"
    schedule: str = "constant"
    average: float | None = None
    sampler: str = "poisson"
    tanh_range: float = 1.0
    tanh_expansion: float = 1.0

    def __post_init__(self) -> None:
        check_choice("model", self.model, MODELS)
        check_choice("clipping", self.clipping, CLIPPINGS)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("sampler", self.sampler, SAMPLERS)
        check_positive("learning_rate", self.learning_rate)

    def changed(self, **changes: Any) -> "Settings":
        """The same with other values; what is ``None`` stays, and steps replace epochs and the other way round."""
        given = {name: value for name, value in changes.items() if value is not None}
        if "steps" in given and "epochs" in given:
            raise InputError(
                f"steps={given['steps']}, epochs={given['epochs']}: only one of them says how long. Leave one out."
            )
        if "steps" in given:
            given["epochs"] = None
        elif "epochs" in given:
            given["steps"] = None
        return dataclasses.replace(self, **given)

    def steps_for(self, examples: int) -> int:
        """How many steps the run takes on a public number of examples."""
        if self.steps is not None:
            return self.steps
        return steps_for_epochs(self.epochs or 0, examples=examples, batch_size=self.batch_size)

    def clipping_rule(self) -> Clipping:
        """The clipping of these settings."""
        return CLIPPINGS[self.clipping](self)


# Chosen on held-out training examples at epsilon 3, never on a test set.
_DEFAULTS: Mapping[str, Settings] = {
    "digits": Settings(model="mlp", batch_size=512, steps=100, learning_rate=0.25, average=0.9),
    "mnist": Settings(model="tanh-cnn", batch_size=1024, epochs=40, clip=0.1, learning_rate=1.5, average=0.999),
    # From here on the published recipes of Tramèr and Boneh (2021), with averaged weights.
    "fashion-mnist": Settings(model="tanh-cnn", batch_size=2048, epochs=40, clip=0.1, learning_rate=4.0, average=0.99),
    "cifar10": Settings(model="tanh-cnn", batch_size=1024, epochs=30, clip=0.1, learning_rate=1.0, average=0.99),
    "cifar10-jpeg": Settings(model="tanh-cnn", batch_size=1024, epochs=30, clip=0.1, learning_rate=1.0, average=0.99),
}


def default_settings(dataset: DataSet, model: str | None = None) -> Settings:
    """Settings that give a good result on a named set or a table, or a reasonable one on any other.

    Args:
        dataset: only public facts about it are looked at.
        model: what is to be trained, where that is already known.
    """
    if dataset.name in _DEFAULTS:
        return _DEFAULTS[dataset.name]
    examples = len(dataset.train)
    if dataset.columns:
        return _table_settings(dataset, model or "table-mlp", examples)
    return Settings(
        model=default_model(dataset.input_shape),
        batch_size=max(1, min(1024, examples // 4)),
        epochs=20,
        learning_rate=2.0 if dataset.task == "classification" else 0.5,
        average=0.99,
    )


def _table_settings(dataset: DataSet, model: str, examples: int) -> Settings:
    """Few steps with large lots, since a table's models are small; chosen on held-out training rows of a census sample,
    on 500 to 16,000 of them, at epsilon 3.

    Inputs in [0, 1] need long weights in a logistic regression, and so long steps. The slope of a squared error has no
    bound as that of a cross-entropy has, and wants short ones.
    """
    class_rate = 2.0 if model == "linear" else 1.0
    rate = class_rate if dataset.task == "classification" else 0.1
    return Settings(model=model, batch_size=max(1, examples // 4), steps=100, learning_rate=rate, average=0.95)
