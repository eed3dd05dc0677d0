"""Models of several configurations and seeds: one after another, or several at a time in processes of their own."""

import dataclasses
import itertools
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tacit.core.errors import InputError
from tacit.datasets import load
from tacit.recipes.conditions import FEATURES, PUBLIC, TRAINING, Conditions, Progress
from tacit.recipes.holding_out import examples_left
from tacit.recipes.interrupting import keeping
from tacit.recipes.knob_rules import check_lot
from tacit.recipes.measuring import Outcome, measure
from tacit.recipes.recipe import Configuration, Recipe
from tacit.training.processes import in_processes


@dataclasses.dataclass(frozen=True)
class Point:
    """A configuration to measure, and what another process makes it from: models and features cannot be sent."""

    configuration: Configuration
    recipe: Recipe
    settings: Mapping[str, str]
    smaller_lots: int = 1


@dataclasses.dataclass(frozen=True)
class _Model:
    """What a process is told of the one model that it trains; ``point`` is the number of its point."""

    point: int
    recipe: Recipe
    settings: Mapping[str, str]
    smaller_lots: int
    conditions: Conditions
    seed: int


def measure_point(point: Point, conditions: Conditions, progress: Progress) -> Outcome:
    """One point over all seeds, as `measure_points` does it.

    Raises:
        SeedsInterrupted: Ctrl-C once a seed had ended; with the outcome of those that had.
    """
    if min(conditions.jobs, conditions.seeds) == 1:
        return measure(point.configuration, conditions, progress)
    ended: list[Outcome] = []
    with keeping(ended, conditions.seeds, lambda: Outcome.joined(ended)):
        _at_once([point], conditions, progress, lambda _, outcome: ended.append(outcome))
        return Outcome.joined(ended)


def measure_points(points: Sequence[Point], conditions: Conditions, progress: Progress) -> list[Outcome]:
    """Every point over all seeds, in order; models are counted over all points.

    With more than one of ``conditions.jobs``, public starts and features are made here first, so that all processes
    find them, and progress is told of models that are done, counted in the order in which they end.
    """
    if min(conditions.jobs, len(points) * conditions.seeds) == 1:
        return [
            measure(point.configuration, conditions, _shifted(progress, number * conditions.seeds))
            for number, point in enumerate(points)
        ]
    ended: list[list[Outcome]] = [[] for _ in points]
    _at_once(points, conditions, progress, lambda number, outcome: ended[number].append(outcome))
    return [Outcome.joined(seeds) for seeds in ended]


def _at_once(
    points: Sequence[Point], conditions: Conditions, progress: Progress, keep: Callable[[int, Outcome], None]
) -> None:
    """Hands over each seed of each point when it has ended, with the point's number."""
    began = time.perf_counter()
    _check_sendable(points[0].recipe, conditions.jobs)
    _make_ready(points, conditions, progress)
    alone = dataclasses.replace(conditions, seeds=1, jobs=1)
    models = [
        _Model(number, point.recipe, dict(point.settings), point.smaller_lots, alone, seed)
        for number, point in enumerate(points)
        for seed in range(conditions.seeds)
    ]
    counted = itertools.count()

    def tell(found: tuple[int, Outcome]) -> None:
        number, outcome = found
        keep(number, dataclasses.replace(outcome, lasted=time.perf_counter() - began))
        progress(next(counted), outcome.steps, outcome.steps, outcome.history[-1]["epsilon"], TRAINING)

    in_processes(_measure_one, models, conditions.jobs, tell)


def _check_sendable(recipe: Recipe, jobs: int) -> None:
    try:
        pickle.dumps(recipe)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"jobs={jobs}: recipe {recipe.name!r} cannot be sent to other processes ({error}). Define its functions "
            "at the top of a module, or leave out jobs."
        ) from None


def _make_ready(points: Sequence[Point], conditions: Conditions, progress: Progress) -> None:
    """Refuses what can be refused now, and leaves on disk what all processes would make otherwise, each by itself.

    A GPU makes features in less time than a disk gives them, and they are not kept: see `Configuration.load`.
    """
    device, kept = conditions.device, list[tuple[Any, ...]]()
    examples = len(load(points[0].configuration.dataset).train)
    for point in points:
        check_lot(point.configuration.batch_size, examples_left(examples) if conditions.held_out else examples)
    for configuration in (point.configuration for point in points):
        configuration.make_start(device, lambda done, steps: progress(0, done, steps, 0.0, PUBLIC))
        origin = configuration.dataset, configuration.features, configuration.start
        if device.type == "cpu" and configuration.features is not None and origin not in kept:
            configuration.load(device, lambda done, inputs: progress(0, done, inputs, 0.0, FEATURES))
            kept.append(origin)


def _measure_one(model: _Model) -> tuple[int, Outcome]:
    configuration = model.recipe.configured(model.settings)
    if model.smaller_lots > 1:
        configuration = configuration.with_smaller_lots(model.smaller_lots, len(load(configuration.dataset).train))
    return model.point, measure(configuration, model.conditions, _untold, first_seed=model.seed)


def _shifted(progress: Progress, first: int) -> Progress:
    return lambda model, step, steps, spent, doing: progress(first + model, step, steps, spent, doing)


def _untold(model: int, step: int, steps: int, spent: float | None, doing: str) -> None:
    """A model is told of when it is done."""
    del model, step, steps, spent, doing
