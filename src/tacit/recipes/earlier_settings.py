"""Measurements from before a recipe was changed: what they had that the recipe, asked for the same, has not."""

import dataclasses
import itertools
import json
import shlex
from collections.abc import Mapping
from typing import Any

from tacit.core.plain import to_json
from tacit.recipes.catalogue import RECIPES
from tacit.recipes.knobs import split_settings
from tacit.recipes.recipe import Recipe


def earlier_settings(result: Mapping[str, Any]) -> dict[str, Any]:
    """Knobs, and the number of steps, that a result has and its command would not give today.

    A knob that was left open, then or now, says nothing, and neither does a result of a recipe that is gone. Empty for
    one that the same command would measure again: as far as knobs and steps tell, not what stands behind them.
    """
    recipe = RECIPES.get(result["name"])
    if recipe is None:
        return {}
    knobs, length = result.get("knobs", {}), result.get("steps")
    try:
        settings = _settings_of(result["command"])
        today = json.loads(to_json(dataclasses.asdict(recipe.with_settings(settings))))
        steps = _steps(recipe, settings)
    except ValueError:  # a knob of the command is gone or no longer takes such a value, or it is no command
        return dict(knobs)
    earlier = {knob: value for knob, value in knobs.items() if _differs(value, today.get(knob, _GONE))}
    return earlier | ({"steps": length} if _differs(length, steps) else {})


_GONE = object()


def _settings_of(command: str) -> dict[str, str]:
    words = itertools.pairwise(shlex.split(command))
    return split_settings("--set", [word for option, word in words if option == "--set"])


def _steps(recipe: Recipe, settings: Mapping[str, str]) -> int | None:
    """As the configuration has them; None where it counts in epochs, or runs by itself."""
    return None if recipe.configure is None else recipe.configured(settings).steps


def _differs(then: Any, now: Any) -> bool:
    return then is not None and now is not None and then != now
