"""The first course's recipes: noise 1 unless something else is asked for."""

import pytest
import torch

from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.recipes import RECIPES
from tacit.recipes.first_course_cnn import count_parameters, tutorial_cnn


def plan(name="mnist", **settings):
    recipe = RECIPES[f"first-course-{name}"]
    return recipe.configure(recipe.with_settings({key: str(value) for key, value in settings.items()})).plan(60_000)


@pytest.mark.parametrize(("name", "epochs"), [("mnist", 15), ("fashion-mnist", 10)])
def test_noise_multiplier_is_one_for_the_epochs_of_the_course(name, epochs):
    planned = plan(name)
    assert planned.noise_multiplier == 1
    assert planned.steps == pytest.approx(epochs * 60_000 / 256, abs=1)
    assert plan(name, clip=5).clipping == Flat(5.0)


def test_epsilon_or_another_noise_may_be_asked_for():
    assert 1.98 < plan(epsilon=2).epsilon() <= 2
    assert plan(noise_multiplier=1.3).noise_multiplier == 1.3
    with pytest.raises(InputError, match="one follows from the other"):
        plan(epsilon=2, noise_multiplier=1.3)


def test_learning_rate_left_open_is_the_optimizers():
    recipe = RECIPES["first-course-mnist"]
    rates = {
        name: recipe.configure(recipe.with_settings({"optimizer": name})).learning_rate
        for name in ("sgd", "momentum", "rmsprop", "adam")
    }
    assert len(set(rates.values())) > 1
    assert recipe.configure(recipe.with_settings({"optimizer": "adam", "lr": "0.3"})).learning_rate == 0.3
    with pytest.raises(InputError, match="optimizer"):
        plan(optimizer="other")


def test_network_is_the_tutorials():
    assert count_parameters((1, 28, 28)) == 26_010
    with pytest.raises(InputError, match="input_shape"):
        tutorial_cnn((1, 8, 8), 10)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 24, 31), (1, 27, 33)])
def test_network_takes_images_of_other_sizes(shape):
    assert tutorial_cnn(shape, 10)(torch.zeros(2, *shape)).shape == (2, 10)
