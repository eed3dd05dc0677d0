"""The tanh network on images and on scattering features: the papers' runs, or with noise found anew."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from tacit.accounting import epsilon
from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.datasets import load
from tacit.models import Scattering
from tacit.recipes import RECIPES, tramer2021

RUNS = {
    "tanh-cnn-mnist": (512, 0.5, 1.23, 40),
    "tanh-cnn-fashion-mnist": (2048, 4.0, 2.15, 40),
    "scatter-cnn-mnist": (1024, 1.0, 1.35, 22),
    "scatter-cnn-fashion-mnist": (2048, 4.0, 2.15, 40),
    "tanh-cnn-cifar10": (1024, 1.0, 1.54, 30),
    "handcrafted-linear-cifar10": (8192, 4.0, 5.67, 60),
    "handcrafted-cnn-cifar10": (8192, 4.0, 5.67, 60),
}


def examples_of(name):
    return 50_000 if name.endswith("cifar10") else 60_000


def configured(name, **settings):
    return RECIPES[name].configure(RECIPES[name].with_settings({key: str(value) for key, value in settings.items()}))


@pytest.mark.parametrize("name", RUNS)
def test_published_setting_is_the_papers_run(name):
    lot, rate, noise, epochs = RUNS[name]
    configuration = configured(name)
    examples = examples_of(name)
    plan = configuration.plan(examples)
    assert (plan.expected_batch_size, configuration.learning_rate, plan.noise_multiplier) == (lot, rate, noise)
    assert configuration.optimizer == "momentum"
    assert plan.clipping == Flat(0.1)
    assert plan.steps * lot / examples == pytest.approx(epochs, rel=0.01)
    assert 2 < plan.epsilon() < 3
    by_the_papers = epsilon(plan.event(), plan.delta, accountant="moments")
    assert by_the_papers == pytest.approx(tramer2021.EPSILON, abs=0.07)


@pytest.mark.parametrize("name", RUNS)
def test_recalibrated_setting_keeps_steps_and_spends_epsilon(name):
    examples = examples_of(name)
    plan = configured(name, setting="recalibrated", epsilon=1).plan(examples)
    assert 0.99 < plan.epsilon() <= 1
    assert plan.steps == configured(name).plan(examples).steps


SIZES = {
    "tanh-cnn-mnist": 26_010,
    "scatter-cnn-mnist": 33_066,
    "tanh-cnn-cifar10": 550_570,
    "handcrafted-linear-cifar10": 155_530,
    "handcrafted-cnn-cifar10": 187_210,
}


@pytest.mark.parametrize(("name", "parameters"), SIZES.items())
def test_networks_have_the_papers_size(name, parameters):
    configuration = configured(name)
    shape = (3, 32, 32) if name.endswith("cifar10") else (1, 28, 28)
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


def test_bounds_of_the_normalisation_in_colour_are_those_of_an_even_grey():
    features = Scattering((32, 32))(torch.full((1, 3, 32, 32), 0.5)).flatten(2)
    for found, bound in (
        (features.mean(2).norm(), tramer2021.COLOUR_MEAN_BOUND),
        (features.square().mean(2).norm(), tramer2021.COLOUR_SQUARE_BOUND),
    ):
        assert 0.9 * bound < float(found) <= bound


@pytest.mark.parametrize("kind", ["linear", "cnn"])
def test_the_normalisation_in_colour_is_in_the_account(kind):
    plan = configured(f"handcrafted-{kind}-cifar10").plan(50_000)
    assert plan.epsilon() > dataclasses.replace(plan, preparations=()).epsilon()
