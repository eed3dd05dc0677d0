"""What a result had that its recipe has changed since."""

import dataclasses
import json

import pytest

from tacit.core.plain import to_json
from tacit.recipes.catalogue import find_recipe
from tacit.recipes.earlier_settings import earlier_settings, settings_of
from tacit.training.noise_prior import NoisePrior

NAME = "noise-linear-cifar10"


def plain(record):
    return json.loads(to_json(dataclasses.asdict(record)))


def result(settings=None, **changes):
    """As a file of today has it, but for changes."""
    settings = {"epsilon": "8", **(settings or {})}
    recipe = find_recipe(NAME)
    configuration = recipe.configured(settings)
    return {
        **{"name": NAME, "settings": settings, "knobs": plain(recipe.with_settings(settings))},
        **{"steps": configuration.steps, "training": {"learning_rate": configuration.learning_rate}},
        "plan": {"expected_batch_size": configuration.batch_size, "clipping": configuration.clipping.describe()},
        "public_start": {"training": plain(NoisePrior().training)},
        "command": "measure.py",
        **changes,
    }


def test_a_result_of_today_has_nothing_earlier():
    assert earlier_settings(result()) == {}
    assert earlier_settings(result({"whitening": "0.7", "steps": "200"})) == {}


def test_what_its_file_tells_is_compared():
    then = result()
    changed = {
        **{"knobs": {**then["knobs"], "whitening": 0.7}, "steps": 200, "training": {"learning_rate": 0.5}},
        "plan": {"expected_batch_size": 600, "clipping": "flat clipping"},
        "public_start": {"training": {**then["public_start"]["training"], "steps": 4500}},
    }
    assert earlier_settings({**then, **changed}) == {
        **{"whitening": 0.7, "steps": 200, "learning_rate": 0.5, "batch_size": 600, "clipped by": "flat clipping"},
        "public start's steps": 4500,
    }


def test_what_a_file_does_not_tell_is_taken_to_be_as_today():
    known = result()
    knobs = {**known["knobs"], "whitening": None}
    del knobs["preparation_noise"]
    assert earlier_settings({**known, "knobs": knobs, "training": {}, "plan": {}}) == {}
    assert earlier_settings({**result(), "knobs": {}, "steps": None}) == {}


def test_a_start_that_is_not_recorded_was_made_before_it_was():
    assert earlier_settings(result(public_start=None)) == {"public start": "not recorded"}


def test_a_prior_that_the_user_named_may_be_any():
    assert earlier_settings(result({"prior": "/some where"}, public_start={"training": {"steps": 1}})) == {}


def test_a_knob_that_is_gone_is_told():
    then = result()
    assert earlier_settings({**then, "knobs": {**then["knobs"], "flips": 2}}) == {"flips": 2}
    assert earlier_settings(result(settings=None) | {"settings": {"flips": "2"}}) == {"flips": "2"}


def test_views_by_a_public_seed_are_told():
    settings = {"epsilon": "3"}
    knobs = plain(find_recipe("scale-cifar10").with_settings(settings))
    then = {"name": "scale-cifar10", "settings": settings, "knobs": knobs, "training": {}, "command": ""}
    assert earlier_settings(then) == {"views": "by the draws of a public seed"}
    assert earlier_settings({**then, "training": {"views": "by secret draws"}}) == {}


@pytest.mark.parametrize("name", ["abadi2016-mnist", "pate2017-mnist"])
def test_steps_that_follow_from_epochs_or_a_run_of_its_own_say_nothing(name):
    then = {"name": name, "settings": {}, "knobs": plain(find_recipe(name).knobs), "steps": 1, "command": ""}
    assert earlier_settings(then) == {}


def test_data_that_are_not_on_this_machine_change_nothing(monkeypatch, tmp_path):
    for variable in ("TACIT_DATA", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    name, settings = "abadi2016-cifar10", {"epsilon": "2", "start": "cifar100"}
    knobs = plain(find_recipe(name).with_settings(settings))
    assert earlier_settings({"name": name, "settings": settings, "knobs": knobs, "command": ""}) == {}


def test_a_recipe_that_is_gone_says_nothing():
    assert earlier_settings(result(name="gone")) == {}


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        (
            f"tacit recipe run {NAME} --set epsilon=8 --seeds 3 --set=whitening=0.7",
            {"epsilon": "8", "whitening": "0.7"},
        ),
        (f"__main__.py recipe run {NAME} --out /home/o'brien", {}),
        ("measure.py", None),
    ],
)
def test_older_files_say_what_was_set_in_their_command(command, settings):
    then = result(command=command)
    del then["settings"]
    assert settings_of(then) == settings
    assert settings is not None or earlier_settings({**then, "steps": 200}) == {}
