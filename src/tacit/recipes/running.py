"""Runs a recipe over several seeds and says what came out, with everything that the figure depends on."""

import statistics
import time
from collections.abc import Mapping
from typing import Any

from tacit.core.errors import InputError
from tacit.recipes.conditions import Conditions, Progress, provenance
from tacit.recipes.guarantee import guarantee_facts
from tacit.recipes.knob_rules import shown_knobs
from tacit.recipes.many_models import Point, measure_points
from tacit.recipes.recipe import Configuration, Recipe


def run_recipe(
    recipe: Recipe, settings: Mapping[str, str], conditions: Conditions, progress: Progress
) -> dict[str, Any]:
    """Measures a recipe; the result is plain JSON values.

    ``epsilon`` is that of the plan that really ran, by privacy loss distributions; ``epsilon_by_accountant`` has the
    others, the moments accountant of 2016 among them, and ``epsilons`` what the recipe itself adds to compare with.
    A configuration that is not private has None and nothing there, and a statement that says so.
    """
    knobs = recipe.with_settings(settings)
    facts = {"name": recipe.name, "method": recipe.method, "source": recipe.source}
    if recipe.run is not None:
        if conditions.jobs > 1:
            raise InputError(f"jobs={conditions.jobs}: {recipe.name} runs by itself, in one process. Leave out jobs.")
        found = recipe.run(knobs, conditions, progress)
        private = found["epsilon"] is not None
        return {**facts, "knobs": shown_knobs(knobs, private=private), "dataset": recipe.dataset, **found}
    configuration = recipe.configured(settings)
    started = time.perf_counter()
    (outcome,) = measure_points([Point(configuration, recipe, settings)], conditions, progress)
    published = recipe.published_for(knobs, private=configuration.private)
    plan = outcome.plan
    return {
        **facts,
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
        "seconds": time.perf_counter() - started,
        "seconds_a_seed": statistics.fmean(outcome.seconds),
        "history": outcome.history,
        "engine": outcome.engine,
        **provenance(conditions),
    }


def _training_facts(configuration: Configuration) -> dict[str, Any]:
    """What the plan does not say."""
    average = configuration.average
    return {
        "optimizer": configuration.optimizer,
        "learning_rate": configuration.learning_rate,
        "weights": (weights := "last iterate" if average is None else f"exponential average, decay {average:g}"),
        "weights_on_the_way": weights,
    }
