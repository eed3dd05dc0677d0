"""The f-DP bound in one run against a linear program, and against mechanisms whose canaries act together."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from tacit.accounting import gdp_from_budget, gdp_to_epsilon
from tacit.auditing.lower_bounds import (
    DpSgdFamily,
    GaussianFamily,
    Guesses,
    independent_guesses_bound,
    one_run_tradeoff_bound,
)
from tacit.auditing.lower_bounds.families import largest_rejected_leakage
from tacit.auditing.lower_bounds.one_run_tradeoff import allows_correct
from tacit.auditing.lower_bounds.tradeoff import Profile, TradeOff
from tacit.core.errors import InputError
from tacit.core.privacy import Budget


def lines_of(tradeoff):
    return list(zip(tradeoff.slopes, tradeoff.heights, strict=True))


def largest_chance(tradeoff, weight, guesses, correct):
    """The largest chance of so many right guesses or more, by a linear program over all distributions of right ones."""
    numbers = np.arange(guesses + 1)
    rows = [
        slope * weight * np.where(numbers >= i, numbers, 0) - weight * np.where(numbers >= i - 1, guesses - numbers, 0)
        for slope, _ in lines_of(tradeoff)
        for i in range(1, guesses + 1)
    ]
    limits = [-height for _, height in lines_of(tradeoff) for _ in range(guesses)]
    found = optimize.linprog(
        -(numbers >= correct).astype(float), A_ub=rows, b_ub=limits, A_eq=np.ones((1, guesses + 1)), b_eq=[1.0]
    )
    return -found.fun


def shared_magnitude(rng, canaries, mu):
    """mu-GDP for each canary, with one privacy loss for all: given how large it is, randomised response."""
    included = rng.random(canaries) < 0.5
    magnitude = abs(rng.standard_normal() + mu / 2)
    honest = rng.random(canaries) < 1 / (1 + math.exp(-mu * magnitude))
    return np.where(honest, included, ~included).astype(float), included


@pytest.mark.parametrize(("inside", "outside"), [(True, True), (True, False), (False, True)])
def test_the_hull_is_the_largest_of_all_lines(inside, outside):
    profile = DpSgdFamily(0.3, 4).profile(0.8)
    tradeoff = profile.for_guesses(inside=inside, outside=outside)
    deltas = {True: profile.inside, False: profile.outside}

    def line(right, epsilon, delta):
        return math.exp(-epsilon) * (right - delta)

    for right in np.linspace(0, 1, 57):
        sides = [side for side, wanted in ((True, inside), (False, outside)) if wanted]
        forward = np.mean([deltas[side] for side in sides], axis=0)
        backward = np.mean([deltas[not side] for side in sides], axis=0)
        values = [line(right, e, d) for e, d in zip(profile.epsilons, forward, strict=True)]
        values += [line(right, -e, 1 - math.exp(-e) * (1 - d)) for e, d in zip(profile.epsilons, backward, strict=True)]
        assert tradeoff.least_wrong(right) == pytest.approx(max(0.0, *values), abs=1e-13)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 4.0])
def test_the_hull_of_a_gaussian_lies_just_below_its_trade_off_function(mu):
    tradeoff = GaussianFamily().profile(mu).for_guesses(inside=True, outside=True)
    for right in (1e-3, 0.02, 0.3, 0.5, 0.9, 0.999):
        exact = stats.norm.cdf(stats.norm.ppf(right) - mu)
        assert exact * 0.97 - 1e-6 <= tradeoff.least_wrong(right) <= exact + 1e-12


def test_the_hull_of_one_sampled_step_lies_just_below_its_trade_off_function():
    """In and out have different curves; each bounds its own guesses."""
    rate, noise = 0.2, 0.9
    profile = DpSgdFamily(rate, 1).profile(1 / noise)
    for cut in (-1.0, 0.3, 1.2, 2.5):
        out_above = stats.norm.sf(cut / noise)
        in_above = (1 - rate) * out_above + rate * stats.norm.sf((cut - 1) / noise)
        for sides, right, wrong in (
            ((True, False), in_above, out_above),
            ((False, True), 1 - out_above, 1 - in_above),
        ):
            least = profile.for_guesses(inside=sides[0], outside=sides[1]).least_wrong(right)
            assert 0.97 * wrong - 1e-6 <= least <= wrong + 1e-12


@settings(max_examples=40, deadline=None)
@given(
    guesses=st.integers(1, 9),
    share=st.floats(0, 1),
    abstained=st.integers(0, 12),
    one_sided=st.booleans(),
    mu=st.floats(0.05, 4.0),
)
def test_the_demands_are_those_of_the_linear_program(guesses, share, abstained, one_sided, mu):
    correct = max(1, round(share * guesses))
    epsilons = np.linspace(0, 12, 13)
    deltas = np.clip(
        stats.norm.cdf(mu / 2 - epsilons / mu) - np.exp(epsilons) * stats.norm.cdf(-mu / 2 - epsilons / mu), 0, 1
    )
    tradeoff = Profile(epsilons, deltas, deltas).for_guesses(inside=True, outside=not one_sided)
    weight = (2 if one_sided else 1) / (2 * guesses + abstained)
    chance = largest_chance(tradeoff, weight, guesses, correct)
    if chance < 1 - 1e-6:
        assert not allows_correct(tradeoff, weight, guesses, correct, chance * 1.001 + 1e-7)
    assert allows_correct(tradeoff, weight, guesses, correct, chance * 0.999 - 1e-7)


@pytest.mark.parametrize("tried", [[Guesses(4, 0)], [Guesses(0, 4)], [Guesses(3, 3)], [Guesses(8, 0), Guesses(5, 5)]])
def test_the_bound_is_that_of_the_linear_program(tried):
    """The largest leakage under which what was seen has at most its share of 0.1; all guesses are right."""
    included, family = np.repeat([True, False], 8), GaussianFamily(most=4.0)
    found = one_run_tradeoff_bound(-np.arange(16.0), included, family=family, delta=1e-5, confidence=0.9, guesses=tried)

    def chance(guesses, leakage):
        both = guesses.inside > 0 and guesses.outside > 0
        tradeoff = family.profile(leakage).for_guesses(inside=guesses.inside > 0, outside=guesses.outside > 0)
        return largest_chance(tradeoff, (1 if both else 2) / 16, guesses.total, guesses.total)

    leakage = gdp_from_budget(Budget(found.epsilon, 1e-5))
    assert any(chance(each, 0.999 * leakage) <= 0.1 / len(tried) for each in tried)
    assert all(chance(each, 1.01 * leakage) > 0.1 / len(tried) for each in tried)
    assert found.epsilon == found.largest


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_two_canaries_under_gaussian_noise_are_allowed_what_they_reach(mu):
    """By hand: the higher of two scores is the included canary's with chance Phi(mu / sqrt(2)) where one is."""
    told_apart = 0.5 * stats.norm.cdf(mu / math.sqrt(2))
    profile = GaussianFamily().profile(mu)
    both, one = (profile.for_guesses(inside=True, outside=outside) for outside in (True, False))
    assert allows_correct(both, 1 / 2, 2, 2, told_apart)
    assert allows_correct(one, 2 / 2, 1, 1, 0.25 + told_apart)
    assert not allows_correct(one, 2 / 2, 1, 1, stats.norm.cdf(2 * mu))


def test_pure_guarantees_give_back_randomised_response():
    """One line, all canaries guessed: the chance is exactly binomial, as in the bound of Steinke et al."""
    epsilon, guesses = 1.0, 30
    tradeoff = TradeOff.of_lines(np.array([-epsilon, epsilon]), np.array([1 - math.exp(-epsilon), 0.0]))
    for correct in (24, 27, 30):
        chance = stats.binom.sf(correct - 1, guesses, 1 / (1 + math.exp(-epsilon)))
        assert allows_correct(tradeoff, 1 / guesses, guesses, correct, chance * 0.999)
        assert largest_chance(tradeoff, 1 / guesses, guesses, correct) >= chance * (1 - 1e-6)


def test_canaries_that_act_together_are_covered_by_this_bound_and_not_by_independent_guesses():
    rng, mu, canaries = np.random.default_rng(5), 1.0, 300
    truth, family = gdp_to_epsilon(mu, 1e-5), GaussianFamily()
    above, above_if_independent = 0, 0
    for _ in range(120):
        scores, included = shared_magnitude(rng, canaries, mu)
        guesses = [Guesses.balanced(canaries)]
        found = one_run_tradeoff_bound(scores, included, family=family, delta=1e-5, guesses=guesses)
        above += found.epsilon > truth
        correct = int(np.count_nonzero((scores > 0.5) == included))
        above_if_independent += independent_guesses_bound(correct, canaries, family=family, delta=1e-5).epsilon > truth
    assert above <= stats.binom.ppf(0.999, 120, 0.05) < above_if_independent


@pytest.mark.parametrize("guesses", [[Guesses.balanced(200)], [Guesses(100, 0)], [Guesses(0, 100)], None])
def test_independent_gaussians_are_covered_and_found(guesses):
    rng, mu, canaries = np.random.default_rng(6), 1.0, 2000

    def bounds(mu, repetitions):
        for _ in range(repetitions):
            included = rng.random(canaries) < 0.5
            scores = rng.standard_normal(canaries) + mu * included
            yield one_run_tradeoff_bound(scores, included, family=GaussianFamily(), delta=1e-5, guesses=guesses)

    truth = gdp_to_epsilon(mu, 1e-5)
    found = [bound.epsilon for bound in bounds(mu, 10)]
    assert sum(epsilon > truth for epsilon in found) <= stats.binom.ppf(0.999, 10, 0.05)
    assert np.median(found) > 0.4 * truth
    assert np.median([bound.epsilon for bound in bounds(2.5 * mu, 3)]) > truth


def test_guesses_about_a_sampled_step():
    rate, noise, canaries, rng = 0.5, 0.7, 6000, np.random.default_rng(7)
    included = rng.random(canaries) < 0.5
    scores = (included & (rng.random(canaries) < rate)) + noise * rng.standard_normal(canaries)
    family = DpSgdFamily(rate, 1)
    bound = one_run_tradeoff_bound(scores, included, family=family, delta=1e-5, guesses=[Guesses(60, 0)])
    assert 0.4 * family.epsilon(1 / noise, 1e-5) < bound.epsilon <= family.epsilon(1 / noise, 1e-5)


@settings(max_examples=12, deadline=None)
@given(correct=st.integers(51, 98), confidence=st.floats(0.6, 0.99))
def test_bounds_by_trade_off_functions_are_monotone(correct, confidence):
    def bound(correct, confidence):
        included = np.arange(100) < correct
        return one_run_tradeoff_bound(
            np.zeros(100),
            included,
            family=GaussianFamily(),
            delta=1e-5,
            confidence=confidence,
            guesses=[Guesses(100, 0)],
        )

    assert bound(correct, confidence).epsilon <= bound(correct + 1, confidence).epsilon <= bound(1, 0.6).largest
    assert bound(correct, (1 + confidence) / 2).epsilon <= bound(correct, confidence).epsilon


@pytest.mark.parametrize("family", [GaussianFamily(), DpSgdFamily(0.3, 3)])
def test_more_leakage_is_easier_to_tell_apart(family):
    lesser, larger = (family.profile(leakage).for_guesses(inside=True, outside=True) for leakage in (0.5, 0.7))
    assert all(larger.least_wrong(right) < lesser.least_wrong(right) for right in (0.1, 0.5, 0.9))
    assert family.total_variation(0.5) < family.total_variation(0.7)
    assert family.epsilon(0.0, 1e-5) == 0 < family.epsilon(0.5, 1e-5) < family.epsilon(0.7, 1e-5)


def test_the_search_returns_what_was_rejected():
    for limit in (1e-6, 0.01, 0.3, 3.0, 9.99):
        found = largest_rejected_leakage(lambda leakage, limit=limit: leakage <= limit, 10.0)
        assert found <= limit
        assert found >= limit * 0.998 - 1e-4
    assert largest_rejected_leakage(lambda _: True, 10.0) == pytest.approx(10.0, rel=1e-3)


@pytest.mark.parametrize(("correct", "guesses"), [(0, 50), (26, 50), (40, 50), (50, 50), (5300, 10_000)])
def test_independent_guesses_invert_the_distance_of_two_gaussians(correct, guesses):
    found = independent_guesses_bound(correct, guesses, family=GaussianFamily(), delta=1e-5)
    accuracy = stats.beta.ppf(0.05, correct, guesses - correct + 1) if correct else 0.0
    expected = gdp_to_epsilon(2 * stats.norm.ppf(accuracy), 1e-5) if accuracy > 0.5 else 0.0
    assert expected * 0.995 - 1e-3 <= found.epsilon <= expected + 1e-9


def test_independent_guesses_are_covered_exactly():
    """The chance of a bound above the truth, over all counts; and near misses are found."""
    guesses, family = 2000, DpSgdFamily(0.4, 3)
    counts = np.arange(guesses + 1)

    def bound(correct):
        return independent_guesses_bound(correct, guesses, family=family, delta=1e-5).epsilon

    def chance_above(leakage, truth):
        bounds = {
            n: independent_guesses_bound(n, guesses, family=family, delta=1e-5).epsilon for n in range(1000, 1400, 8)
        }
        lowest = min((n for n, bound in bounds.items() if bound > family.epsilon(truth, 1e-5)), default=guesses + 1)
        accuracy = (1 + family.total_variation(leakage)) / 2
        return stats.binom.pmf(counts, guesses, accuracy)[lowest:].sum()

    assert chance_above(0.5, 0.5) <= 0.05
    assert chance_above(0.8, 0.5) > 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"correct": 5}, "correct=5"),
        ({"correct": -1}, "correct=-1"),
        ({"guesses": 0}, "guesses=0"),
        ({"delta": 0}, "delta=0"),
    ],
)
def test_bad_counts_are_refused(arguments, message):
    usual = {"correct": 1, "guesses": 4, "family": GaussianFamily(), "delta": 1e-5}
    with pytest.raises(InputError, match=message):
        independent_guesses_bound(**(usual | arguments))


def test_a_family_needs_a_rate_and_steps():
    with pytest.raises(InputError, match="sampling_rate=0"):
        DpSgdFamily(0.0, 3)
    with pytest.raises(InputError, match="steps=0"):
        DpSgdFamily(0.5, 0)
