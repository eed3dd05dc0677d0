"""The tanh filter's recipe runs the paper's mechanism, and says what it is worth."""

import math

import pytest

from tacit.clipping import Flat, Tanh
from tacit.core.errors import InputError
from tacit.recipes.tanh_filter_images import RECIPES

RECIPE, COLOUR = RECIPES
NUMBERS = 26_010


def knobs(**settings):
    return RECIPE.with_settings({key: str(value) for key, value in settings.items()})


def plan(**settings):
    return RECIPE.configure(knobs(**settings)).plan(60_000)


@pytest.mark.parametrize(
    ("setting", "clipping"),
    [("published", Tanh(2.0, 3.0)), ("sound", Tanh(2.0, 3.0, 0.5)), ("plain", Flat(0.5))],
)
def test_every_setting_has_the_papers_noise_on_the_sum(setting, clipping):
    of_the_filter = {} if setting == "plain" else {"c": 2, "k": 3}
    configuration = RECIPE.configure(knobs(setting=setting, bound=0.5, **of_the_filter))
    model = configuration.model((1, 28, 28), 10)
    counts = {name: parameter.numel() for name, parameter in model.named_parameters()}
    assert sum(counts.values()) == NUMBERS
    planned = configuration.plan(60_000)
    assert planned.clipping == clipping
    assert planned.noise_multiplier * planned.clipping.bind(counts).total == pytest.approx(1.1)
    assert planned.sampling_rate == pytest.approx(0.00427, rel=1e-3)


def test_the_true_epsilon_of_the_papers_setting_is_what_the_sensitivity_says():
    published = plan()
    assert published.noise_multiplier == pytest.approx(1.1 / math.sqrt(NUMBERS))
    said = RECIPE.epsilons(knobs(), published)
    assert said["claimed"] == pytest.approx(1.281, abs=0.001)
    assert said["actual"] == pytest.approx(published.epsilon(), rel=1e-4)
    assert said["actual"] > 300_000
    assert said["sound"] == pytest.approx(plan(setting="sound").epsilon(), rel=1e-4)
    assert said["sound"] < said["claimed"]


def test_colour_images_have_a_network_and_a_sensitivity_of_their_own():
    configuration = COLOUR.configured({})
    model = configuration.model((3, 32, 32), 10)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    planned = configuration.plan(50_000)
    assert planned.noise_multiplier == pytest.approx(1.1 / math.sqrt(numbers))
    assert planned.sampling_rate == pytest.approx(0.00512)
    assert COLOUR.epsilons(COLOUR.knobs, planned)["actual"] == pytest.approx(planned.epsilon(), rel=1e-4)


def test_unknown_settings_are_refused():
    with pytest.raises(InputError, match="setting"):
        plan(setting="other")
    with pytest.raises(InputError, match="noise"):
        plan(noise=0)
