"""Runs a recipe over several seeds and says what came out, with everything that the figure depends on."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tacit.core.errors import InputError
from tacit.datasets import load
from tacit.recipes.conditions import Conditions, Progress, seed_facts
from tacit.recipes.guarantee import guarantee_facts
from tacit.recipes.interrupting import told_of
from tacit.recipes.knob_rules import shown_knobs
from tacit.recipes.many_models import Point, measure_point
from tacit.recipes.measuring import Outcome
from tacit.recipes.recipe import Configuration, Recipe

Result = dict[str, Any]
_Measurement = tuple[Callable[[], Any], Callable[[Any], Result]]  # how a recipe runs, and what its outcome says


def run_recipe(recipe: Recipe, settings: Mapping[str, str], conditions: Conditions, progress: Progress) -> Result:
    """Measures a recipe; the result is plain JSON values.

    ``epsilon`` is that of the plan that really ran, by privacy loss distributions; ``epsilon_by_accountant`` has the
    others, the moments accountant of 2016 among them, and ``epsilons`` what the recipe itself adds to compare with.
    A configuration that is not private has None and nothing there, and a statement that says so.

    Where there is an account, it must hold all seeds before the first is trained. It pays for all that the result
    shows, and what it cannot pay for is left out or refused.

    Raises:
        BudgetExceededError: the account does not hold all seeds; nothing was spent.
        SeedsInterrupted: Ctrl-C once a seed had ended; with the result of those that had. Its ``seeds`` says how many
            they are, ``seeds_asked`` how many were asked for.
    """
    knobs = recipe.with_settings(settings)
    facts = {"name": recipe.name, "method": recipe.method, "source": recipe.source, "settings": dict(settings)}
    if recipe.run is None:
        measure, tell = _configured(recipe, knobs, settings, conditions, progress)
    else:
        measure, tell = _by_itself(recipe, knobs, conditions, progress)
    return told_of(measure, lambda found: {**facts, **tell(found)}, conditions.seeds)


def _by_itself(recipe: Recipe, knobs: Any, conditions: Conditions, progress: Progress) -> _Measurement:
    """A recipe with a way of its own."""
    if conditions.jobs > 1:
        raise InputError(f"jobs={conditions.jobs}: {recipe.name} runs by itself, in one process. Leave out jobs.")

    def tell(found: Result) -> Result:
        private = found["epsilon"] is not None
        return {"knobs": shown_knobs(knobs, private=private), "dataset": recipe.dataset, **found}

    assert recipe.run is not None
    return functools.partial(recipe.run, knobs, conditions, progress), tell


def _configured(
    recipe: Recipe, knobs: Any, settings: Mapping[str, str], conditions: Conditions, progress: Progress
) -> _Measurement:
    """One that is a configuration."""
    configuration = recipe.configured(settings)
    if configuration.private and conditions.account is not None:  # before features, which take minutes
        conditions.require([configuration.plan(len(load(configuration.dataset).train))])
    point = Point(configuration, recipe, settings)
    tell = functools.partial(_outcome_facts, recipe, knobs, configuration, conditions)
    return lambda: measure_point(point, conditions, progress), tell


def _outcome_facts(
    recipe: Recipe, knobs: Any, configuration: Configuration, conditions: Conditions, outcome: Outcome
) -> Result:
    published = recipe.published_for(knobs, private=configuration.private)
    plan = outcome.plan
    return {
        "knobs": shown_knobs(knobs, private=configuration.private),
        "dataset": configuration.dataset,
        "published": None if published is None else published.accuracy,
        "published_epsilon": None if published is None else published.epsilon,
        "published_accountant": None if published is None else published.accountant,
        "published_note": None if published is None else published.note,
        "measured_on": outcome.measured_on,
        **guarantee_facts(plan),
        "epsilons": {} if plan is None or recipe.epsilons is None else dict(recipe.epsilons(knobs, plan)),
        "steps": outcome.steps,
        "training": training_facts(configuration),
        "public_start": outcome.public_start,
        "engine": outcome.engine,
        **seed_facts(outcome.accuracies, outcome.seconds, outcome.history, conditions),
        "seconds": outcome.lasted,
    }


def training_facts(configuration: Configuration) -> Result:
    """What a result says of training that its plan does not."""
    average = configuration.average
    facts = {
        "optimizer": configuration.optimizer,
        "learning_rate": configuration.learning_rate,
        "weights": (weights := "last iterate" if average is None else f"exponential average, decay {average:g}"),
        "weights_on_the_way": weights,
    }
    return facts if configuration.augment is None else {**facts, "views": "by secret draws"}
