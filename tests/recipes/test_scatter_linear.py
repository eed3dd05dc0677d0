"""Scattering and a linear classifier: what each setting is, and that all of it is in the account."""

import math

import pytest
import torch
from dp_accounting import dp_event

from tacit.accounting.events import flatten
from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.datasets import DataSet, Split
from tacit.models import Upright
from tacit.recipes import RECIPES, Conditions, run_recipe
from tacit.training.preparation import Centring, ChannelNormalisation, ChannelWhitening

MNIST, FASHION = RECIPES["scatter-linear-mnist"], RECIPES["scatter-linear-fashion-mnist"]


def configured(recipe, **settings):
    return recipe.configure(recipe.with_settings({key: str(value) for key, value in settings.items()}))


def gaussian_noise(plan):
    parts = [(event, count) for event, count in flatten(plan.event()) if isinstance(event, dp_event.GaussianDpEvent)]
    return [event.noise_multiplier for event, count in parts for _ in range(count)]


@pytest.mark.parametrize("recipe", [MNIST, FASHION])
@pytest.mark.parametrize("target", [0.5, 3, 8])
def test_own_setting_spends_epsilon_on_preparations_and_training_together(recipe, target):
    plan = configured(recipe, epsilon=target).plan(60_000)
    assert 0.99 * target < plan.epsilon() <= target
    centring, whitening = plan.preparations
    assert isinstance(centring, Centring)
    assert isinstance(whitening, ChannelWhitening)
    assert centring.examples == whitening.examples == 60_000
    assert gaussian_noise(plan) == [centring.noise_multiplier, whitening.noise_multiplier]


def test_an_epsilon_between_takes_the_nearest_level():
    found, due = configured(MNIST, epsilon=2.6), configured(MNIST, epsilon=3)
    assert found.epsilon == 2.6
    assert (found.batch_size, found.learning_rate) == (due.batch_size, due.learning_rate)
    assert found.plan(60_000).preparations == due.plan(60_000).preparations


def test_digits_are_made_upright_and_clothes_are_not():
    maps = [configured(recipe).features((1, 28, 28)) for recipe in (MNIST, FASHION)]
    assert [isinstance(features[0], Upright) for features in maps] == [True, False]


def test_rate_falls_to_zero_over_the_steps():
    configuration = configured(MNIST, steps=10)
    assert [configuration.schedule(step) for step in (0, 5, 10)] == [1, 0.5, 0]


def test_clip_is_a_tenth_of_the_features_length():
    assert configured(MNIST).clipping.bound == pytest.approx(0.1 * math.sqrt(81 * 7 * 7), rel=0.01)


@pytest.mark.parametrize(("recipe", "lot", "rate", "noise"), [(MNIST, 4096, 8.0, 3.04), (FASHION, 8192, 16.0, 4.05)])
def test_published_setting_is_the_papers_run(recipe, lot, rate, noise):
    configuration = configured(recipe, setting="published")
    plan = configuration.plan(60_000)
    assert (plan.expected_batch_size, configuration.learning_rate, plan.noise_multiplier) == (lot, rate, noise)
    assert plan.clipping == Flat(0.1)
    assert plan.steps * lot / 60_000 == pytest.approx(40, rel=0.01)
    assert 2 < plan.epsilon() < 3  # privacy loss distributions are tighter than what was claimed
    assert 0.99 * 3 < configured(recipe, setting="recalibrated").plan(60_000).epsilon() <= 3


def test_published_normalisation_is_in_the_account():
    plan = configured(MNIST, setting="published").plan(60_000)
    (normalisation,) = plan.preparations
    assert isinstance(normalisation, ChannelNormalisation)
    assert gaussian_noise(plan) == [pytest.approx(8 / math.sqrt(2))]
    assert configured(FASHION, setting="published").plan(60_000).preparations == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"setting": "other"}, "setting"),
        ({"setting": "published", "epsilon": 1}, "recalibrated"),
        ({"setting": "recalibrated", "noise_multiplier": 1}, "noise_multiplier"),
        ({"noise_multiplier": 1}, "noise_multiplier"),
        ({"epsilon": -1}, "epsilon"),
    ],
)
def test_what_cannot_be_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        configured(MNIST, **settings)


@pytest.mark.parametrize("setting", ["own", "published", "recalibrated"])
def test_images_that_differ_are_told_apart(setting, monkeypatch, tmp_path):
    """Stripes along either axis, through the whole of a run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tacit.recipes.recipe.load", lambda _: stripes(800, 100))
    settings = {"setting": setting, "epsilon": "3", "batch_size": "400", "steps": "15", "delta": "1e-4"}
    result = run_recipe(MNIST, settings, Conditions(), lambda *_: None)
    assert result["measured"] > 0.9


def stripes(*sizes):
    generator = torch.Generator().manual_seed(0)

    def split(count):
        targets = torch.randint(2, (count,), generator=generator)
        waves = (torch.arange(28) // 2 % 2).float().expand(count, 1, 28, 28)
        images = torch.where(targets.view(-1, 1, 1, 1) == 1, waves, waves.transpose(2, 3))
        return Split(images * torch.rand(count, 1, 28, 28, generator=generator), targets)

    return DataSet("stripes", *map(split, sizes), classes=2, input_shape=(1, 28, 28), source="here")
