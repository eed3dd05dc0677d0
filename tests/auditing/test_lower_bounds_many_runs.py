"""Bounds from many runs: coverage by exact enumeration, and an honest choice of the threshold."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.accounting import gdp_to_epsilon
from tacit.auditing.lower_bounds import clopper_pearson_bound, gaussian_bound
from tacit.core.errors import InputError

BOUNDS = {"any": clopper_pearson_bound, "gaussian": gaussian_bound}


def binary(errors, runs, right):
    """Scores of 0 and 1 with so many on the wrong side."""
    return np.where(np.arange(runs) < errors, 1 - right, right).astype(float)


def chance_above(bound, epsilon, runs, fpr, fnr, delta, confidence):
    """The exact chance that a bound at a fixed threshold exceeds ``epsilon``."""
    chance = 0.0
    for positives in range(runs + 1):
        for negatives in range(runs + 1):
            found = bound(
                binary(negatives, runs, 1),
                binary(positives, runs, 0),
                delta=delta,
                confidence=confidence,
                threshold=0.5,
            )
            if found.epsilon > epsilon:
                chance += stats.binom.pmf(positives, runs, fpr) * stats.binom.pmf(negatives, runs, fnr)
    return chance


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response_is_covered(epsilon):
    error = 1 / (1 + math.exp(epsilon))
    assert chance_above(clopper_pearson_bound, epsilon, 16, error, error, 0.0, 0.9) <= 0.1
    assert chance_above(clopper_pearson_bound, 0.5 * epsilon, 16, error, error, 0.0, 0.9) > 0.001


@pytest.mark.parametrize("mu", [0.5, 1.0])
def test_the_gaussian_is_covered(mu):
    error, epsilon = stats.norm.sf(mu / 2), gdp_to_epsilon(mu, 1e-5)
    assert chance_above(gaussian_bound, epsilon, 16, error, error, 1e-5, 0.9) <= 0.1
    # The limits are not idle: a mechanism with 2.5 times mu is found out more often than that.
    wide = stats.norm.sf(2.5 * mu / 2)
    assert chance_above(gaussian_bound, epsilon, 16, wide, wide, 1e-5, 0.9) > 0.1


def test_limits_are_those_of_clopper_and_pearson():
    found = clopper_pearson_bound(binary(3, 40, 1), binary(5, 30, 0), delta=0.01, threshold=0.5)
    fpr, fnr = stats.beta.ppf(0.975, 6, 25), stats.beta.ppf(0.975, 4, 37)
    assert found.epsilon == pytest.approx(math.log(max((0.99 - fnr) / fpr, (0.99 - fpr) / fnr)))
    best_fpr, best_fnr = 1 - 0.025 ** (1 / 30), 1 - 0.025 ** (1 / 40)
    largest = math.log(max((0.99 - best_fnr) / best_fpr, (0.99 - best_fpr) / best_fnr))
    assert found.largest == pytest.approx(largest)
    gaussian = gaussian_bound(binary(3, 40, 1), binary(5, 30, 0), delta=0.01, threshold=0.5)
    assert gaussian.epsilon == pytest.approx(gdp_to_epsilon(stats.norm.isf(fpr) - stats.norm.ppf(fnr), 0.01))


@pytest.mark.parametrize("name", BOUNDS)
def test_the_threshold_is_not_chosen_on_the_runs_that_count(name):
    """The first quarter asks for a threshold of 9, at which the others show nothing; one of 0 would have been best."""
    inside, outside = np.repeat([11.0, 1.0], [10, 30]), np.repeat([9.0, 0.0], [10, 30])
    assert BOUNDS[name](inside, outside, delta=1e-5, threshold=0.0).epsilon > 1
    assert BOUNDS[name](inside, outside, delta=1e-5).epsilon == 0
    assert BOUNDS[name](inside[::-1], outside[::-1], delta=1e-5).epsilon > 1  # and 0 is right for 11 and 9 too


@pytest.mark.parametrize("name", BOUNDS)
def test_noise_shows_nothing_in_many_runs(name):
    rng = np.random.default_rng(3)
    shown = [BOUNDS[name](*rng.standard_normal((2, 20)), delta=1e-5, confidence=0.8).epsilon > 0 for _ in range(60)]
    assert sum(shown) <= stats.binom.ppf(0.999, 60, 0.2)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_chosen_threshold_comes_near_the_truth(name):
    rng = np.random.default_rng(4)
    inside, outside = rng.standard_normal((2, 8_000)) + np.array([[2.0], [0.0]])
    truth = gdp_to_epsilon(2.0, 1e-5)
    share = BOUNDS[name](inside, outside, delta=1e-5).epsilon / truth
    assert (0.85 if name == "gaussian" else 0.3) < share <= 1


@settings(max_examples=60, deadline=None)
@given(
    positives=st.integers(0, 29),
    negatives=st.integers(0, 30),
    confidence=st.floats(0.5, 0.99),
    name=st.sampled_from(["any", "gaussian"]),
)
def test_more_errors_and_more_confidence_never_raise_a_bound(positives, negatives, confidence, name):
    def bound(positives, confidence):
        inside, outside = binary(negatives, 30, 1), binary(positives, 30, 0)
        return BOUNDS[name](inside, outside, delta=1e-3, confidence=confidence, threshold=0.5).epsilon

    # Beyond chance an error on one side may help the other direction of the general bound.
    if name == "gaussian" or positives + negatives < 15:
        assert bound(positives + 1, confidence) <= bound(positives, confidence) + 1e-12
    assert bound(positives, (1 + confidence) / 2) <= bound(positives, confidence) + 1e-12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scores_in": []}, "scores_in of shape"),
        ({"scores_out": [math.nan, 1.0]}, "scores_out of shape"),
        ({"scores_in": [1.0]}, "two each at least"),
        ({"confidence": 0.0}, "confidence=0.0"),
    ],
)
@pytest.mark.parametrize("name", BOUNDS)
def test_bad_runs_are_refused(name, arguments, message):
    usual = {"scores_in": [1.0, 2.0], "scores_out": [0.0, 1.0], "delta": 1e-5}
    with pytest.raises(InputError, match=message):
        BOUNDS[name](**(usual | arguments))


def test_gaussian_dp_has_no_pure_epsilon():
    with pytest.raises(InputError, match="delta=0"):
        gaussian_bound([1.0, 2.0], [0.0, 1.0], delta=0)
    assert clopper_pearson_bound([1.0] * 9, [0.0] * 9, delta=0).largest > 0
