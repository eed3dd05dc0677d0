"""Sweeps: one recipe, or the defaults of a data set, for every value of one or more knobs."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from dp_accounting import ComposedDpEvent

from tacit.accounting import epsilon
from tacit.core.errors import InputError
from tacit.core.validation import check_count
from tacit.datasets import CATALOGUE, load
from tacit.plan import DPSGD
from tacit.recipes.catalogue import RECIPES
from tacit.recipes.conditions import Conditions, Progress, provenance
from tacit.recipes.holding_out import examples_left
from tacit.recipes.knob_rules import check_lot
from tacit.recipes.knobs import split_setting
from tacit.recipes.many_models import Point, measure_points
from tacit.recipes.named_set import recipe_for
from tacit.recipes.recipe import PLAIN, Configuration, Recipe

_POINTS = 4  # a row shows its end alone; this much moves the progress bar


@dataclasses.dataclass(frozen=True)
class Axis:
    """A knob and the values that it takes, as they were written."""

    key: str
    values: tuple[str, ...]


def read_axes(texts: Sequence[str]) -> tuple[Axis, ...]:
    """``KEY=V1,V2,…`` of each ``--over``."""
    if not texts:
        raise InputError("over: must be given at least once, such as --over clip=0.1,0.5,1,2.")
    axes = []
    for text in texts:
        key, values = split_setting("--over", text)
        parts = tuple(part.strip() for part in values.split(","))
        if not all(parts):
            raise InputError(f"--over {text}: has an empty value. Separate the values by single commas.")
        if len(set(parts)) < len(parts):
            raise InputError(f"--over {text}: has a value twice. Give each once; --seeds N trains N models of each.")
        axes.append(Axis(key, parts))
    if len({axis.key for axis in axes}) < len(axes):
        raise InputError(f"--over {axes[-1].key}: was given more than once. List all of its values in one.")
    return tuple(axes)


def find_subject(name: str) -> Recipe:
    """A recipe of this name, or the data set's own defaults."""
    if name in RECIPES:
        return RECIPES[name]
    if name in CATALOGUE:
        return recipe_for(name)
    known = ", ".join([*CATALOGUE, *RECIPES])
    raise InputError(f"dataset={name!r}: is neither a named data set nor a recipe. There are: {known}.")


def combine(axes: Sequence[Axis], settings: Mapping[str, str]) -> list[dict[str, str]]:
    """What each point of the grid sets."""
    keys = [axis.key for axis in axes]
    for key in settings.keys() & set(keys):
        raise InputError(f"--set {key}={settings[key]}: --over goes over its values. Give it in one of the two.")
    return [
        {**settings, **dict(zip(keys, values, strict=True))}
        for values in itertools.product(*(axis.values for axis in axes))
    ]


def private_configurations(subject: Recipe, combinations: Sequence[Mapping[str, str]]) -> list[Configuration]:
    """That of each point; a sweep counts what all of them cost, so that none may be without a guarantee."""
    found = [subject.configured(combination) for combination in combinations]
    if not all(configuration.private for configuration in found):
        raise InputError(f"setting={PLAIN}: has no privacy, which a sweep would count. Use tacit recipe run.")
    return found


def run_sweep(
    subject: Recipe,
    axes: Sequence[Axis],
    settings: Mapping[str, str],
    conditions: Conditions,
    progress: Progress,
    *,
    smaller_lots: int = 1,
) -> dict[str, Any]:
    """Measures every combination of the axes' values; plain JSON values.

    Every row spends by itself. ``epsilon_together`` is what releasing all of them, or choosing one by its result on the
    training data's own examples, would cost. Where there is an account, it must hold all rows before the first is
    trained, and every model is charged to it.

    With ``smaller_lots`` every row is a cheaper stand-in (`Configuration.with_smaller_lots`), on held-out examples: it
    has the epsilon of what ran, and beside it lot, noise and epsilon of the run that it stands for.

    Raises:
        BudgetExceededError: the account does not hold all of it; nothing was spent.
    """
    combinations = combine(axes, settings)
    configurations = private_configurations(subject, combinations)
    conditions = dataclasses.replace(conditions, points=_POINTS)
    examples = len(load(configurations[0].dataset).train)
    left = examples_left(examples) if conditions.held_out else examples
    for configuration in configurations:  # all rows before the first is trained
        check_lot(configuration.batch_size, left)
    if conditions.account is not None:
        conditions.require([configuration.plan(examples) for configuration in configurations])
    full = [configuration.plan(examples) for configuration in configurations] if smaller_lots > 1 else []
    configurations = _stand_ins(configurations, examples, conditions, smaller_lots)
    points = [
        Point(configuration, subject, combination, smaller_lots)
        for combination, configuration in zip(combinations, configurations, strict=True)
    ]
    outcomes = measure_points(points, conditions, progress)
    rows: list[dict[str, Any]] = []
    plans: list[DPSGD] = []
    for combination, outcome in zip(combinations, outcomes, strict=True):
        plan = outcome.plan
        if plan is None:
            raise AssertionError("rows of a sweep are private")
        plans.append(plan)
        rows.append(
            {
                **{axis.key: _number(combination[axis.key]) for axis in axes},
                "test_accuracy" if not conditions.held_out else "held_out_accuracy": outcome.mean,
                "std": outcome.std,
                "epsilon": plan.epsilon(),
                "delta": plan.delta,
                "noise_multiplier": plan.noise_multiplier,
                "steps": plan.steps,
                **(_stands_for(full[len(rows)]) if full else {}),
                "seconds": sum(outcome.seconds),
            }
        )
    return {
        "name": subject.name,
        "dataset": subject.dataset,
        "over": [dataclasses.asdict(axis) for axis in axes],
        "settings": dict(settings),
        "smaller_lots": smaller_lots,
        "measured_on": outcomes[-1].measured_on,
        "public_start": outcomes[-1].public_start,
        "rows": rows,
        "epsilon_together": _together(plans, conditions.seeds),
        **provenance(conditions),
    }


def _stand_ins(
    configurations: Sequence[Configuration], examples: int, conditions: Conditions, smaller_lots: int
) -> list[Configuration]:
    if check_count("smaller_lots", smaller_lots) == 1:
        return list(configurations)
    if not conditions.held_out:
        raise InputError(
            f"smaller_lots={smaller_lots}: is to choose by, and nothing is chosen on a test set. Add --held-out."
        )
    return [configuration.with_smaller_lots(smaller_lots, examples) for configuration in configurations]


def _stands_for(plan: DPSGD) -> dict[str, float]:
    return {
        "full_batch_size": plan.expected_batch_size,
        "full_noise_multiplier": plan.noise_multiplier,
        "full_epsilon": plan.epsilon(),
    }


def _together(plans: Sequence[DPSGD], seeds: int) -> float:
    events = [plan.event() for plan in plans for _ in range(seeds)]
    return epsilon(ComposedDpEvent(events), max(plan.delta for plan in plans), neighbours=plans[0].neighbours)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
