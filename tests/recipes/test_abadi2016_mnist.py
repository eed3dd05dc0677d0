"""The 2016 recipe is what the paper says, and costs what it says under its own accountant."""

import pytest
from dp_accounting import dp_event

from tacit.accounting import epsilon
from tacit.accounting.events import flatten
from tacit.clipping import PerLayer
from tacit.core.errors import InputError
from tacit.models import Upright
from tacit.recipes import RECIPES
from tacit.training import PrincipalComponents

RECIPE = RECIPES["abadi2016-mnist"]


def configured(**settings):
    return RECIPE.configure(RECIPE.with_settings({key: str(value) for key, value in settings.items()}))


@pytest.mark.parametrize(("target", "noise", "pca_noise"), [(0.5, 8, 16), (2, 4, 7), (8, 2, 4)])
def test_published_setting_has_the_papers_noise_within_its_epsilon(target, noise, pca_noise):
    configuration = configured(epsilon=target)
    plan = configuration.plan(60_000)
    assert plan.noise_multiplier == noise
    (pca,) = configuration.preparations
    assert pca == PrincipalComponents(60, pca_noise, pca.gain, pca.whitening)
    assert plan.sampling_rate == pytest.approx(0.01)
    assert plan.clipping == PerLayer(4.0)
    names = [name for name, _ in configuration.model((60,), 10).named_parameters()]
    assert plan.clipping.bind(names).total == pytest.approx(4)  # what the noise is relative to
    claimed = epsilon(plan.event(), 1e-5, accountant="moments")
    assert claimed <= target
    assert plan.epsilon() < claimed  # privacy loss distributions are tighter


@pytest.mark.parametrize("target", [0.5, 2, 8])
def test_epsilon_counts_the_pca(target):
    plan = configured(epsilon=target).plan(60_000)
    gaussians = [event for event, _ in flatten(plan.event()) if isinstance(event, dp_event.GaussianDpEvent)]
    assert [event.noise_multiplier for event in gaussians] == [plan.preparations[0].noise_multiplier]


@pytest.mark.parametrize("target", [0.5, 1, 2, 8])
def test_recalibrated_setting_spends_the_whole_epsilon(target):
    plan = configured(epsilon=target, setting="recalibrated").plan(60_000)
    assert 0.99 * target < plan.epsilon() <= target


@pytest.mark.parametrize(("target", "pca_noise"), [(0.4, 16), (0.51, 16), (1.9, 16), (2.1, 7), (7, 7), (9, 4)])
def test_an_epsilon_between_takes_the_pca_noise_of_the_level_below(target, pca_noise):
    (pca,) = configured(epsilon=target, setting="recalibrated").preparations
    assert pca.noise_multiplier == pca_noise


def test_the_pca_of_the_level_above_may_cost_all_of_epsilon():
    assert epsilon(dp_event.GaussianDpEvent(7.0), 1e-5) > 0.5


def test_learning_rate_falls_for_ten_epochs():
    schedule = configured().schedule
    rates = [0.1 * schedule(step) for step in (0, 500, 1000, 5000)]
    assert rates == pytest.approx([0.1, 0.076, 0.052, 0.052])


def test_network_has_one_hidden_layer():
    model = configured(hidden=30).model((60,), 10)
    assert [tuple(parameter.shape) for parameter in model.parameters()] == [(30, 60), (10, 30)]


def test_epsilons_that_the_paper_does_not_have_are_refused():
    with pytest.raises(InputError, match="recalibrated"):
        configured(epsilon=3)
    with pytest.raises(InputError, match="noise_multiplier"):
        configured(epsilon=3, setting="recalibrated", noise_multiplier=1)
    with pytest.raises(InputError, match="setting"):
        configured(setting="other")


def test_digits_are_upright_unless_pixels_are_asked_for():
    features = configured().features
    assert features is not None
    assert isinstance(features((1, 28, 28)), Upright)
    assert configured(inputs="pixels").features is None
    with pytest.raises(InputError, match="inputs"):
        configured(inputs="other")
