"""Any named data set as a recipe: the defaults of ``tacit train``, each of them a knob."""

import dataclasses
import functools

from torch import nn

from tacit import models
from tacit.datasets import CATALOGUE, load
from tacit.plan import DEFAULT_EPSILON, default_delta
from tacit.recipes.recipe import Configuration, Recipe
from tacit.training import Settings, default_settings
from tacit.training.optimizers import schedule_factor


@dataclasses.dataclass(frozen=True)
class Knobs:
    """The budget, and the settings of `tacit.training.Settings`; None is the data set's default."""

    epsilon: float | None = None
    noise_multiplier: float | None = None
    delta: float | None = None
    model: str | None = None
    batch_size: int | None = None
    epochs: float | None = None
    steps: int | None = None
    clip: float | None = None
    clipping: str | None = None
    optimizer: str | None = None
    learning_rate: float | None = None
    schedule: str | None = None
    average: float | None = None


_BUDGET = ("epsilon", "noise_multiplier", "delta")


def recipe_for(dataset: str) -> Recipe:
    """How ``tacit train DATASET`` trains, as a recipe without a published figure."""
    data = load(dataset)
    defaults = default_settings(data)
    return Recipe(
        name=dataset,
        title=f"tacit train {dataset}",
        method=defaults.model,
        source=CATALOGUE[dataset].homepage,
        dataset=dataset,
        knobs=Knobs(),
        configure=functools.partial(_configure, dataset, defaults, len(data.train)),
    )


def _configure(dataset: str, defaults: Settings, examples: int, knobs: Knobs) -> Configuration:
    changes = {name: value for name, value in dataclasses.asdict(knobs).items() if name not in _BUDGET}
    settings = defaults.changed(**changes)
    steps = settings.steps_for(examples)
    given = knobs.epsilon is not None or knobs.noise_multiplier is not None
    return Configuration(
        dataset=dataset,
        model=functools.partial(_build, settings),
        batch_size=settings.batch_size,
        steps=steps,
        clipping=settings.clipping_rule(),
        learning_rate=settings.learning_rate,
        optimizer=settings.optimizer,
        schedule=schedule_factor(settings.schedule, steps),
        average=settings.average,
        epsilon=knobs.epsilon if given else DEFAULT_EPSILON,
        noise_multiplier=knobs.noise_multiplier,
        delta=default_delta(examples) if knobs.delta is None else knobs.delta,
    )


def _build(settings: Settings, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return models.build(settings.model, input_shape, classes)
