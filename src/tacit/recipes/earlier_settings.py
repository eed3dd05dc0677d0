"""Measurements from before a recipe was changed: what they had that the recipe, asked for the same, has not."""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from tacit.core.errors import InputError
from tacit.core.plain import to_json
from tacit.recipes.catalogue import RECIPES
from tacit.recipes.recipe import Configuration, Recipe, Start
from tacit.recipes.running import training_facts

Facts = dict[str, Any]

_GONE = object()
_START = "public start"


def earlier_settings(result: Mapping[str, Any]) -> Facts:
    """What a result says of its settings that the same settings would not give today; empty where that is nothing.

    Compared are knobs, lot, steps, clipping, optimizer, learning rate, the weights tested, how views were drawn and
    what made a public start: what a configuration says, not the code behind it. What was left open or not written down,
    then or now, says nothing, and neither does a result of a recipe that is gone or one that no command of tacit made.
    """
    recipe, settings = RECIPES.get(result["name"]), settings_of(result)
    if recipe is None or settings is None:
        return {}
    then: Facts = dict(result.get("knobs", {}))
    try:
        knobs = recipe.with_settings(settings)
    except InputError:  # one is gone, or no longer takes this value
        return dict(settings)
    today = _plain(dataclasses.asdict(knobs))
    configuration = _configuration(recipe, settings)
    if configuration is not None:
        then |= _recorded(result, configuration)
        today |= _configured(configuration)
    return {key: value for key, value in then.items() if _differs(value, today.get(key, _GONE))}


def settings_of(result: Mapping[str, Any]) -> dict[str, str] | None:
    """What a result was asked for; None where neither it nor its command says so.

    Older files have it in their command alone.
    """
    if "settings" in result:
        return dict(result["settings"])
    command = result["command"]
    if f"recipe run {result['name']}" not in command:
        return None
    return dict(re.findall(r"--set[ =]([\w-]+)=(\S+)", command))


def _configuration(recipe: Recipe, settings: Mapping[str, str]) -> Configuration | None:
    """None where it runs by itself, or needs data that are not on this machine."""
    try:
        return None if recipe.configure is None else recipe.configured(settings)
    except InputError:
        return None


def _configured(configuration: Configuration) -> Facts:
    facts = {
        "batch_size": configuration.batch_size,
        "steps": configuration.steps,
        "clipped by": configuration.clipping.describe(),
        **training_facts(configuration),
    }
    return _plain(facts | _start_facts(None if configuration.start is None else configuration.start.settings()))


def _recorded(result: Mapping[str, Any], configuration: Configuration) -> Facts:
    plan = result.get("plan", {})
    facts = {
        "batch_size": plan.get("expected_batch_size"),
        "steps": result.get("steps"),
        "clipped by": plan.get("clipping"),
        **result.get("training", {}),
    }
    if configuration.augment is not None:
        facts.setdefault("views", "by the draws of a public seed")  # as all were before it was written down
    return facts | _recorded_start(result, configuration.start)


def _recorded_start(result: Mapping[str, Any], start: Start | None) -> Facts:
    if start is None or start.settings() is None:
        return {}
    record = result.get("public_start")
    return {_START: "not recorded"} if record is None else _start_facts(record.get("training"))


def _start_facts(settings: Mapping[str, Any] | None) -> Facts:
    return {f"{_START}'s {key}": value for key, value in (settings or {}).items()}


def _plain(facts: Facts) -> Facts:
    """As they come back from a file."""
    plain: Facts = json.loads(to_json(facts))
    return plain


def _differs(then: Any, now: Any) -> bool:
    return then is not None and now is not None and then != now
