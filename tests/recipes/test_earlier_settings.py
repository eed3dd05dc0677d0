"""What a result had that its recipe has changed since."""

import dataclasses
import json

import pytest

from tacit.core.plain import to_json
from tacit.recipes.catalogue import find_recipe
from tacit.recipes.earlier_settings import earlier_settings

RECIPE = find_recipe("noise-linear-cifar10")


def result(knobs=(), steps=400, sets="--set epsilon=8", recipe=RECIPE):
    """As recorded today, but for what is given."""
    today = json.loads(to_json(dataclasses.asdict(dataclasses.replace(recipe.knobs, epsilon=8.0))))
    command = f"tacit recipe run {recipe.name} {sets} --seeds 3"
    return {"name": recipe.name, "knobs": today | dict(knobs), "steps": steps, "command": command}


def test_a_result_of_today_has_nothing_earlier():
    assert earlier_settings(result()) == {}


def test_another_default_and_another_length_are_told():
    assert earlier_settings(result({"whitening": 0.7}, steps=200)) == {"whitening": 0.7, "steps": 200}


def test_what_the_command_has_set_is_nothing_earlier():
    sets = "--set epsilon=8 --set whitening=0.7 --set steps=200"
    assert earlier_settings(result({"whitening": 0.7, "steps": 200}, steps=200, sets=sets)) == {}


def test_a_knob_that_was_open_or_is_new_says_nothing():
    knobs = result({"whitening": None})["knobs"]
    del knobs["preparation_noise"]
    assert earlier_settings({**result(), "knobs": knobs}) == {}


def test_a_knob_that_is_gone_is_told():
    assert earlier_settings(result({"flips": 2})) == {"flips": 2}


def test_a_command_that_is_refused_today_was_earlier_as_a_whole():
    given = result(sets="--set epsilon=8 --set flips=2")
    assert earlier_settings(given) == given["knobs"]


@pytest.mark.parametrize("name", ["abadi2016-mnist", "pate2017-mnist"])
def test_steps_that_follow_from_epochs_or_a_run_of_its_own_say_nothing(name):
    recipe = find_recipe(name)
    knobs = json.loads(to_json(dataclasses.asdict(recipe.knobs)))
    given = {"name": name, "knobs": knobs, "steps": 1, "command": f"tacit recipe run {name} --seeds 5"}
    assert earlier_settings(given) == {}


def test_a_recipe_that_is_gone_says_nothing():
    assert earlier_settings({**result({"whitening": 0.7}), "name": "gone"}) == {}


def test_a_command_that_is_none_was_earlier_as_a_whole():
    given = {**result(), "command": "tacit recipe run 'noise"}
    assert earlier_settings(given) == given["knobs"]
