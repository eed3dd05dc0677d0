"""A wrong knob is refused under its own name, before anything is loaded or trained."""

import dataclasses
import typing

import pytest
import torch

from tacit.accounting.selection import TruncatedNegativeBinomial
from tacit.core.errors import InputError
from tacit.core.privacy import Budget
from tacit.datasets import load
from tacit.recipes import RECIPES, Conditions, run_recipe
from tacit.recipes.knob_rules import RULES, check_lot
from tacit.recipes.named_set import Knobs as NamedSet
from tacit.recipes.recipe import Configuration
from tacit.recipes.selection_plan import plan_selection
from tacit.recipes.sweeping import find_subject, read_axes, run_sweep

NUMBERS = [
    (recipe.name, name)
    for recipe in RECIPES.values()
    for name, hint in typing.get_type_hints(type(recipe.knobs)).items()
    if hint not in (str, str | None)
]


def quiet(*_):
    pass


def test_every_number_that_may_be_set_has_a_rule():
    assert {name for _, name in NUMBERS} <= RULES.keys()
    named = {name for name, hint in typing.get_type_hints(NamedSet).items() if hint != str | None}
    assert named <= RULES.keys()


@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
@pytest.mark.parametrize(("recipe", "name"), NUMBERS)
def test_no_recipe_takes_a_number_that_is_none_for_its_knob(recipe, name, value):
    with pytest.raises(InputError, match=rf"^{name}="):
        RECIPES[recipe].check({name: value})


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("abadi2016-mnist", {"hidden": 0}, "hidden=0: must be at least 1"),
        ("abadi2016-mnist", {"dimensions": 0}, "dimensions=0: must be at least 1"),
        ("abadi2016-mnist", {"clip": 0}, "clip=0.0: must be a finite number above 0"),
        ("abadi2016-mnist", {"average": 2}, "average=2.0: must lie strictly between 0 and 1"),
        ("abadi2016-mnist", {"whitening": 2}, "whitening=2.0: must be at most 1"),
        ("abadi2016-mnist", {"noise": 4, "epsilon": -3}, "epsilon=-3.0: must be a finite number above 0"),
        ("abadi2016-mnist", {"noise": 4, "epsilon": 3}, "epsilon=3: the paper has 0.5, 2, 8"),
        ("abadi2016-mnist", {"noise": 4, "noise_multiplier": 8}, "noise_multiplier=8: is the same knob as noise=4"),
        ("abadi2016-mnist", {"batch-size": 4, "lot": 8}, "lot=8: is the same knob as batch-size=4"),
        ("tanh-cnn-mnist", {"noise": 4, "epsilon": 7}, "epsilon=7: the paper has 3"),
        ("scale-cifar10", {"batch_size": 0}, "batch_size=0: must be at least 1"),
        ("scale-cifar10", {"mixtures": -1}, "mixtures=-1: must be at least 0"),
        ("scale-cifar10", {"depth": 15}, "depth=15: must be 4 above a multiple of 6"),
        ("scale-cifar10", {"shortcut": "none-at-all"}, "shortcut='none-at-all': must be one of"),
        ("noise-prior-cifar10", {"readout_steps": 500}, "readout_steps=500: must be at most the 220 steps"),
        (
            "scale-cifar10",
            {"mixtures": 2, "multiplicity": 1},
            "mixtures=2, multiplicity=1: a mixture is of two views. Take a multiplicity of at least 2, or no mixtures.",
        ),
        ("noise-prior-cifar10", {"mixtures": 1, "multiplicity": 1}, "mixtures=1, multiplicity=1: a mixture is of two"),
        ("tanh-filter-mnist", {"optimizer": "best"}, "optimizer='best': must be one of"),
        ("tanh-filter-recurrent", {"hidden": 0}, "hidden=0: must be at least 1"),
        ("tanh-filter-recurrent", {"momentum": 1}, "momentum=1.0: must be below 1"),
        ("tanh-filter-recurrent", {"setting": "plain", "learning_rate": -1}, "learning_rate=-1.0: must be"),
        ("tanh-filter-recurrent", {"setting": "plain", "batch_size": 0}, "batch_size=0: must be at least 1"),
        ("tanh-filter-recurrent", {"setting": "plain", "examples": 50}, "batch_size=100: must be at most the 50"),
        ("tanh-filter-recurrent", {"setting": "filtered", "epsilon": 2}, "epsilon=2.0: setting=filtered has no"),
    ],
)
def test_the_message_names_knob_value_and_rule(recipe, settings, message):
    with pytest.raises(InputError) as refused:
        RECIPES[recipe].check({key: str(value) for key, value in settings.items()})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "recipe",
    ["scatter-linear-mnist", "filters-linear-fashion-mnist", "scatter-linear-cifar10", "scatter-cnn-cifar10"],
)
def test_channels_are_whitened_in_part_at_least(recipe):
    with pytest.raises(InputError) as refused:
        RECIPES[recipe].check({"whitening": "0"})
    assert str(refused.value) == (
        "whitening=0.0: must be above 0 and at most 1. There is no setting without whitening; with a number such as "
        "0.01 features stay nearly as they are."
    )


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        (
            "scatter-linear-mnist",
            {"setting": "published", "whitening": 0.3},
            "whitening=0.3: means nothing in setting=published. Leave it out.",
        ),
        (
            "scatter-linear-fashion-mnist",
            {"setting": "recalibrated", "preparation_noise": 1},
            "preparation_noise=1.0: means nothing in setting=recalibrated. Leave it out.",
        ),
        ("tanh-filter-mnist", {"setting": "plain", "c": 7}, "c=7.0: setting=plain has no filter. Leave it out."),
        ("tanh-filter-mnist", {"setting": "plain", "k": 9}, "k=9.0: setting=plain has no filter. Leave it out."),
        ("tanh-filter-recurrent", {"setting": "plain", "c": 7}, "c=7.0: setting=plain has no filter. Leave it out."),
        ("tanh-filter-recurrent", {"setting": "private", "k": 9}, "k=9.0: setting=private has no filter. Leave"),
        ("filters-linear-cifar10", {"prior": "a"}, "prior='a': features=scattering,filters take none. Leave it out."),
        ("noise-prior-cifar10", {"readout_steps": 0, "readout_rate": 2}, "readout_rate=2.0: there are no readout"),
        ("noise-prior-cifar10", {"readout_steps": 9, "steps": 9, "lr": 2}, "learning_rate=2.0: all steps are readout"),
    ],
)
def test_a_knob_that_means_nothing_in_a_setting_is_refused(recipe, settings, message):
    with pytest.raises(InputError) as refused:
        RECIPES[recipe].check({key: str(value) for key, value in settings.items()})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("private-knn-mnist", {"teachers": "9"}, "teachers=9: private-knn has none. Leave it out."),
        ("private-knn-mnist", {"teacher": "forest"}, "teacher='forest': private-knn has none. Leave it out."),
        ("pate2017-mnist", {"sigma": "9"}, "sigma=9: is for gnmax"),
    ],
)
def test_pate_refuses_so_before_it_loads_anything(recipe, settings, message, monkeypatch):
    monkeypatch.setattr("tacit.recipes.pate_images.load", None)
    with pytest.raises(InputError) as refused:
        run_recipe(RECIPES[recipe], settings, Conditions(), quiet)
    assert message in str(refused.value)


@pytest.mark.parametrize("recipe", ["abadi2016-mnist", "pate2017-votes-mnist"])
def test_principal_directions_may_keep_their_lengths(recipe):
    RECIPES[recipe].check({"whitening": "0"})


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        (
            "abadi2016-mnist",
            {"setting": "recalibrated"},
            "epsilon=0.01: before training come DP-PCA to 60 dimensions with noise multiplier 16, which cost 0.204 "
            "however much noise training has. Set a larger epsilon, or a larger pca_noise.",
        ),
        ("scatter-linear-mnist", {}, "Set a larger epsilon, or a larger preparation_noise."),
        ("filters-linear-cifar10", {}, "Set a larger epsilon, or a larger preparation_noise."),
        ("scatter-cnn-cifar10", {}, "Set a larger epsilon, or a larger preparation_noise."),
        ("scatter-cnn-mnist", {"setting": "recalibrated"}, "training has. Set a larger epsilon."),
    ],
)
def test_an_epsilon_below_the_cost_of_preparations_says_what_to_change(recipe, settings, message):
    configuration = RECIPES[recipe].configured({**settings, "epsilon": "0.01"})
    with pytest.raises(InputError) as refused:
        configuration.plan(50_000)
    assert str(refused.value).startswith("epsilon=0.01: before training come ")
    assert str(refused.value).endswith(message)


def test_it_is_refused_before_features_are_computed(monkeypatch):
    monkeypatch.setattr("tacit.recipes.recipe.load", lambda _: load("digits"))
    monkeypatch.setattr("tacit.recipes.recipe.with_features", None)
    configuration = RECIPES["scatter-linear-mnist"].configured({"epsilon": "0.01", "batch_size": "20"})
    with pytest.raises(InputError, match=r"^epsilon=0\.01: before training come"):
        configuration.load(torch.device("cpu"))


def test_a_private_selection_says_so_too():
    configuration = RECIPES["abadi2016-mnist"].configured({})
    with pytest.raises(InputError, match=r"^epsilon=0\.1: before training come .* Set .* or a larger pca_noise"):
        plan_selection([configuration], 50_000, Budget(0.1, 1e-5), TruncatedNegativeBinomial.with_mean(10.0, 0.0))


def test_a_lot_is_no_larger_than_the_training_set():
    assert check_lot(100, 100) == 100
    configuration = RECIPES["abadi2016-mnist"].configured({"batch_size": "70000"})
    with pytest.raises(InputError, match=r"^batch_size=70000: must be at most the 60000 examples"):
        configuration.plan(60_000)


@pytest.mark.parametrize(
    ("over", "settings", "message"),
    [
        ("batch_size=64,5000", {}, "batch_size=5000: must be at most the 1438"),
        ("clip=1,-1", {}, "clip=-1.0"),
        ("clip=1,2", {"clip": "3"}, "--set clip=3: --over goes over"),
        ("noise=1,2", {"noise_multiplier": "3"}, "noise=1: is the same knob as noise_multiplier=3"),
    ],
)
def test_a_sweep_refuses_every_row_before_it_trains_one(over, settings, message, monkeypatch):
    monkeypatch.setattr("tacit.recipes.sweeping.measure_points", None)
    with pytest.raises(InputError) as refused:
        run_sweep(find_subject("digits"), read_axes([over]), settings, Conditions(), quiet)
    assert message in str(refused.value)


def test_a_held_out_sweep_refuses_lots_beyond_what_is_left(monkeypatch):
    monkeypatch.setattr("tacit.recipes.sweeping.measure_points", None)
    axes = read_axes(["batch_size=64,1300"])
    with pytest.raises(InputError, match="batch_size=1300: must be at most the 1151 examples"):
        run_sweep(find_subject("digits"), axes, {}, Conditions(held_out=True), quiet)


def test_other_noise_than_the_papers_has_no_published_figure():
    for name in ("abadi2016-mnist", "tanh-cnn-mnist"):
        recipe = RECIPES[name]
        assert recipe.published_for(recipe.with_settings({})) is not None
        assert recipe.published_for(recipe.with_settings({"noise": "5"})) is None


def test_a_readout_takes_no_more_steps_than_there_are():
    configuration = RECIPES["noise-prior-cifar10"].configured({})
    assert isinstance(configuration, Configuration)
    assert configuration.readout is not None
    with pytest.raises(InputError, match="readout_steps"):
        dataclasses.replace(configuration, steps=configuration.readout.steps - 1)
