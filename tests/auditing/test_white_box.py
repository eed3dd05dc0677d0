"""Dirac canaries through a private run: what is seen, how it is scored, and that wrong noise is caught."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats

import tacit
from tacit.auditing.white_box import DiracRun, log_likelihood_ratio, noisy_sums, run_on_dirac_canaries
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.randomness import Randomness

EXAMPLES = 10_000


def plan_for(rate=1.0, steps=1, clip=1.0, delta=1e-5, **noise):
    return tacit.DPSGD(
        expected_batch_size=int(rate * EXAMPLES),
        examples=EXAMPLES,
        steps=steps,
        clipping=tacit.clipping.Flat(clip),
        delta=delta,
        **noise,
    )


GAUSSIAN = plan_for(epsilon=4.0)
SAMPLED = plan_for(0.25, 12, clip=0.3, epsilon=4.0)
PLANS = pytest.mark.parametrize("plan", [GAUSSIAN, SAMPLED], ids=["gaussian", "sampled"])


@pytest.mark.parametrize("clip", [0.3, 7.0])
def test_the_sums_are_the_drawn_canaries_clipped(clip):
    plan = plan_for(0.25, 3, clip=clip, noise_multiplier=1e-3)
    included = np.arange(4000) % 2 == 0
    for sums in noisy_sums(plan, included, Randomness(unsafe_seed=1)):
        drawn = np.round(sums)
        assert set(np.unique(drawn)) == {0.0, 1.0}  # clipped to C, in units of C, and each on its own coordinate
        assert np.abs(sums - drawn).max() < 6e-3
        assert not drawn[~included].any()
        assert abs(drawn.sum() - 500) < 6 * math.sqrt(2000 * 0.25 * 0.75)


def test_the_noise_is_that_of_the_plan():
    plan = plan_for(noise_multiplier=2.0)
    (sums,) = noisy_sums(plan, np.zeros(20_000, dtype=bool), Randomness(unsafe_seed=2))  # an empty data set
    assert stats.kstest(sums / 2.0, "norm").pvalue > 1e-3
    assert max(stats.kstest(sums / near, "norm").pvalue for near in (1.8, 2.2)) < 1e-6
    assert abs(np.corrcoef(sums[1:], sums[:-1])[0, 1]) < 4 / math.sqrt(20_000)


@pytest.mark.parametrize("rate", [0.01, 0.5, 1.0])
def test_the_score_is_the_likelihood_ratio(rate):
    sums, noise = np.linspace(-6, 6, 25), 0.8
    out = stats.norm.pdf(sums, 0, noise)
    expected = np.log(((1 - rate) * out + rate * stats.norm.pdf(sums, 1, noise)) / out)
    np.testing.assert_allclose(log_likelihood_ratio(sums, rate, noise), expected, rtol=1e-9, atol=1e-12)


@PLANS
def test_a_correct_run_is_found_to_leak_nearly_what_it_claims(plan):
    torch.manual_seed(0)  # changes nothing
    for seed in range(3):
        run = run_on_dirac_canaries(plan, 50_000, randomness=Randomness(unsafe_seed=seed))
        assert run.claimed == plan.epsilon() < run.bound().largest
        assert run.bound().epsilon / run.claimed > 0.87
        assert 0.8 < run.bound(confidence=0.999).epsilon / run.claimed < 1


@PLANS
@pytest.mark.parametrize("part", [0.5, 0.8])
def test_pitfall_40_less_noise_than_claimed_is_caught(plan, part):
    """The lots and the noise of another plan, judged by the claim of this one."""
    less = plan_for(
        plan.sampling_rate, plan.steps, clip=plan.clipping.bound, noise_multiplier=part * plan.noise_multiplier
    )
    run = run_on_dirac_canaries(less, 20_000, randomness=Randomness(unsafe_seed=3))
    accused = dataclasses.replace(run, plan=plan)
    assert accused.bound(confidence=0.999).epsilon > accused.claimed


def test_the_bound_for_any_mechanism_lies_below():
    run = run_on_dirac_canaries(GAUSSIAN, 20_000, randomness=Randomness(unsafe_seed=4))
    anyhow = run.bound_for_any_mechanism()
    assert 0.5 * run.claimed < anyhow.epsilon < run.bound().epsilon
    assert anyhow.epsilon < anyhow.largest


def test_coins_are_fair_and_not_the_same_twice():
    first, second = (run_on_dirac_canaries(GAUSSIAN, 5000) for _ in range(2))
    assert abs(first.included.mean() - 0.5) < 6 * 0.5 / math.sqrt(5000)
    assert not np.array_equal(first.included, second.included)
    assert abs(np.corrcoef(first.included, second.included)[0, 1]) < 6 / math.sqrt(5000)


def test_right_guesses_are_those_on_the_side_of_the_ratio():
    run = DiracRun(GAUSSIAN, np.array([True, True, False, False]), np.array([0.1, -0.1, 0.1, -0.1]))
    assert run.correct == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"sampler": "fixed-size"},
        {"neighbours": tacit.Neighbours.REPLACE_ONE},
        {"unit": tacit.PrivacyUnit("person", 2)},
        {"noise_multiplier": 0.0, "unsafe_no_noise": True},
    ],
)
def test_what_the_ratio_does_not_speak_for_is_refused(changes):
    with pytest.raises(UnsupportedError, match="Dirac canaries audit Poisson sampling"):
        run_on_dirac_canaries(plan_for(0.5, 2, **({"noise_multiplier": 1.0} | changes)), 100)


def test_a_single_canary_is_refused():
    with pytest.raises(InputError, match="canaries=1"):
        run_on_dirac_canaries(GAUSSIAN, 1)
