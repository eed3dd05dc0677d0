"""Scattering and random filters beside each other on small grey images."""

import pytest
import torch

from tacit.core.errors import InputError
from tacit.datasets import DataSet, Split
from tacit.recipes import Conditions, find_recipe, run_recipe

RECIPE = find_recipe("filters-linear-fashion-mnist")


@pytest.mark.parametrize("target", [0.5, 2, 8])
def test_epsilon_is_spent_on_preparations_and_training_together(target):
    plan = RECIPE.configured({"epsilon": str(target)}).plan(60_000)
    assert 0.99 * target < plan.epsilon() <= target
    assert [preparation.examples for preparation in plan.preparations] == [60_000, 60_000]


def test_features_are_as_many_as_are_whitened_and_the_same_each_time():
    configuration = RECIPE.configured({"filters": "7"})
    images = torch.rand(3, 1, 28, 28)
    found = configuration.features((1, 28, 28))(images)
    assert found.shape == (3, 81 * 49 + 14 * 16)
    assert torch.equal(found, configuration.features((1, 28, 28))(images))
    _, whitening = configuration.preparations(100)
    assert whitening.kinds == ((81, 49), (14, 16))
    assert configuration.clipping.bound == pytest.approx(0.1 * found.shape[1] ** 0.5)


def test_dark_and_light_halves_are_told_apart(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tacit.recipes.recipe.load", lambda _: halves(600, 100))
    settings = {"filters": "5", "epsilon": "8", "batch_size": "300", "steps": "10", "delta": "1e-4"}
    result = run_recipe(RECIPE, settings, Conditions(), lambda *_: None)
    assert result["measured"] > 0.9
    assert len(result["plan"]["preparations"]) == 2


def test_no_filters_are_refused():
    with pytest.raises(InputError, match="filters=0"):
        RECIPE.configured({"filters": "0"})


def halves(*sizes):
    generator = torch.Generator().manual_seed(0)

    def split(count):
        targets = torch.randint(2, (count,), generator=generator)
        images = 0.3 * torch.rand(count, 1, 28, 28, generator=generator)
        images[targets == 0, :, :14] += 0.7
        images[targets == 1, :, 14:] += 0.7
        return Split(images, targets)

    return DataSet("halves", *map(split, sizes), classes=2, input_shape=(1, 28, 28), source="here")
