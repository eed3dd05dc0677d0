"""Runs a recipe over several seeds and says what came out, with everything that the figure depends on."""

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from tacit.core.errors import InputError
from tacit.recipes.conditions import Conditions, Progress, check_payable, provenance
from tacit.recipes.guarantee import guarantee_facts
from tacit.recipes.interrupting import SeedsInterrupted
from tacit.recipes.knob_rules import shown_knobs
from tacit.recipes.many_models import Point, measure_points
from tacit.recipes.measuring import Outcome
from tacit.recipes.recipe import Configuration, Recipe

Facts = dict[str, Any]
_Way = tuple[Callable[[], Any], Callable[[Any], Facts]]  # how a recipe runs, and what its outcome says


def run_recipe(recipe: Recipe, settings: Mapping[str, str], conditions: Conditions, progress: Progress) -> Facts:
    """Measures a recipe; the result is plain JSON values.

    ``epsilon`` is that of the plan that really ran, by privacy loss distributions; ``epsilon_by_accountant`` has the
    others, the moments accountant of 2016 among them, and ``epsilons`` what the recipe itself adds to compare with.
    A configuration that is not private has None and nothing there, and a statement that says so.

    Raises:
        SeedsInterrupted: Ctrl-C after some seeds; with the result of these, which says how many they are.
    """
    check_payable(conditions)
    knobs = recipe.with_settings(settings)
    facts = {"name": recipe.name, "method": recipe.method, "source": recipe.source}
    if recipe.run is None:
        run, told = _configured(recipe, knobs, settings, conditions, progress)
    else:
        run, told = _by_itself(recipe, knobs, conditions, progress)
    try:
        return {**facts, **told(run())}
    except SeedsInterrupted as stopped:
        raise stopped.told_as({**facts, **told(stopped.found)}) from None


def _by_itself(recipe: Recipe, knobs: Any, conditions: Conditions, progress: Progress) -> _Way:
    """A recipe with a way of its own."""
    if conditions.jobs > 1:
        raise InputError(f"jobs={conditions.jobs}: {recipe.name} runs by itself, in one process. Leave out jobs.")

    def told(found: Facts) -> Facts:
        private = found["epsilon"] is not None
        return {"knobs": shown_knobs(knobs, private=private), "dataset": recipe.dataset, **found}

    assert recipe.run is not None
    return functools.partial(recipe.run, knobs, conditions, progress), told


def _configured(
    recipe: Recipe, knobs: Any, settings: Mapping[str, str], conditions: Conditions, progress: Progress
) -> _Way:
    """One that is a configuration."""
    configuration = recipe.configured(settings)
    started = time.perf_counter()

    def told(outcome: Outcome) -> Facts:
        seconds = time.perf_counter() - started
        return {**_outcome_facts(recipe, knobs, configuration, outcome, conditions), "seconds": seconds}

    return lambda: measure_points([Point(configuration, recipe, settings)], conditions, progress)[0], told


def _outcome_facts(
    recipe: Recipe, knobs: Any, configuration: Configuration, outcome: Outcome, conditions: Conditions
) -> Facts:
    published = recipe.published_for(knobs, private=configuration.private)
    plan = outcome.plan
    return {
        "knobs": shown_knobs(knobs, private=configuration.private),
        "dataset": configuration.dataset,
        "published": None if published is None else published.accuracy,
        "published_epsilon": None if published is None else published.epsilon,
        "published_accountant": None if published is None else published.accountant,
        "published_note": None if published is None else published.note,
        "measured": outcome.mean,
        "std": outcome.std,
        "accuracies": outcome.accuracies,
        "measured_on": outcome.measured_on,
        **guarantee_facts(plan),
        "epsilons": {} if plan is None or recipe.epsilons is None else dict(recipe.epsilons(knobs, plan)),
        "steps": outcome.steps,
        "training": _training_facts(configuration),
        "public_start": outcome.public_start,
        "seconds_a_seed": statistics.fmean(outcome.seconds),
        "history": outcome.history,
        "engine": outcome.engine,
        **provenance(dataclasses.replace(conditions, seeds=len(outcome.accuracies))),
    }


def _training_facts(configuration: Configuration) -> Facts:
    """What the plan does not say."""
    average = configuration.average
    return {
        "optimizer": configuration.optimizer,
        "learning_rate": configuration.learning_rate,
        "weights": (weights := "last iterate" if average is None else f"exponential average, decay {average:g}"),
        "weights_on_the_way": weights,
    }
