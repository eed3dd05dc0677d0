"""The tanh network on images and on scattering features: the papers' runs, or with noise found anew."""

import pytest
import torch
import torch.nn.functional as F

from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.datasets import load
from tacit.models import Scattering
from tacit.recipes import RECIPES, tramer2021

RUNS = {
    "tanh-cnn-mnist": (512, 0.5, 1.23, 40),
    "tanh-cnn-fashion-mnist": (2048, 4.0, 2.15, 40),
    "scatter-cnn-mnist": (1024, 1.0, 1.35, 25),
    "scatter-cnn-fashion-mnist": (2048, 4.0, 2.15, 40),
}


def configured(name, **settings):
    return RECIPES[name].configure(RECIPES[name].with_settings({key: str(value) for key, value in settings.items()}))


@pytest.mark.parametrize("name", RUNS)
def test_published_setting_is_the_papers_run(name):
    lot, rate, noise, epochs = RUNS[name]
    configuration = configured(name)
    plan = configuration.plan(60_000)
    assert (plan.expected_batch_size, configuration.learning_rate, plan.noise_multiplier) == (lot, rate, noise)
    assert configuration.optimizer == "momentum"
    assert plan.clipping == Flat(0.1)
    assert plan.steps * lot / 60_000 == pytest.approx(epochs, rel=0.01)
    assert 2 < plan.epsilon() < 3


@pytest.mark.parametrize("name", RUNS)
def test_recalibrated_setting_keeps_steps_and_spends_epsilon(name):
    plan = configured(name, setting="recalibrated", epsilon=1).plan(60_000)
    assert 0.99 < plan.epsilon() <= 1
    assert plan.steps == configured(name).plan(60_000).steps


@pytest.mark.parametrize(("name", "parameters"), [("tanh-cnn-mnist", 26_010), ("scatter-cnn-mnist", 33_066)])
def test_networks_have_the_papers_size(name, parameters):
    configuration = configured(name)
    shape = (1, 28, 28)
    if configuration.features is not None:
        images = torch.zeros(1, *shape)
        shape = tuple(configuration.features(shape)(images).shape[1:])
    assert sum(parameter.numel() for parameter in configuration.model(shape, 10).parameters()) == parameters


def test_an_epsilon_that_the_paper_does_not_have_is_refused():
    with pytest.raises(InputError, match="recalibrated"):
        configured("tanh-cnn-mnist", epsilon=1)
    with pytest.raises(InputError, match="setting"):
        configured("tanh-cnn-mnist", setting="own")


def test_bounds_of_the_normalisation_come_from_public_digits():
    digits = F.pad(F.interpolate(load("digits").train.inputs, size=(20, 20), mode="bilinear"), (4, 4, 4, 4))
    features = Scattering((28, 28))(digits).flatten(2)
    for found, bound in (
        (features.mean(2).norm(dim=1).max(), tramer2021.MEAN_BOUND),
        (features.square().mean(2).norm(dim=1).max(), tramer2021.SQUARE_BOUND),
    ):
        assert 0.9 * bound < float(found) <= bound
