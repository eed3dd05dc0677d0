"""The bound of Steinke, Nasr and Jagielski against its formula, exact enumeration and mechanisms of known epsilon."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.auditing.lower_bounds import Guesses, LowerBound, one_run_bound
from tacit.auditing.lower_bounds.guesses import Evidence, halving
from tacit.auditing.lower_bounds.one_run import chance_of_correct, largest_rejected
from tacit.core.errors import InputError


def literal_chance(canaries, guesses, correct, epsilon, delta):
    """The theorem, word by word."""
    p = math.exp(epsilon) / (math.exp(epsilon) + 1)
    mass = [math.comb(guesses, k) * p**k * (1 - p) ** (guesses - k) for k in range(guesses + 1)]
    alpha = max(2 / i * sum(mass[k] for k in range(max(0, correct - i), correct)) for i in range(1, canaries + 1))
    return min(1.0, sum(mass[correct:]) + delta * canaries * alpha)


def randomised_response(rng, canaries, epsilon):
    included = rng.random(canaries) < 0.5
    honest = rng.random(canaries) < 1 / (1 + math.exp(-epsilon))
    return np.where(honest, included, ~included).astype(float), included


def test_the_chance_is_that_of_the_theorem():
    for canaries, guesses in ((1, 1), (4, 4), (9, 9), (12, 7), (40, 33)):
        for correct in range(guesses + 1):
            for epsilon in (0.0, 0.3, 1.0, 4.0):
                for delta in (0.0, 1e-5, 1e-3):
                    found = chance_of_correct(canaries, guesses, correct, epsilon, delta)
                    assert found == pytest.approx(literal_chance(canaries, guesses, correct, epsilon, delta), rel=1e-9)


def test_the_mean_of_masses_stops_where_it_has_begun_to_fall():
    """Large counts take the widening window; the whole range is the slow twin."""
    guesses, accuracy = 20_000, 0.7
    for correct in (100, 13_000, 14_000, 14_200, 15_000, 19_999):
        masses = stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, accuracy)
        steepest = (np.cumsum(masses) / np.arange(1, correct + 1)).max()
        expected = min(1.0, stats.binom.sf(correct - 1, guesses, accuracy) + 2e-5 * guesses * steepest)
        epsilon = math.log(accuracy / (1 - accuracy))
        assert chance_of_correct(guesses, guesses, correct, epsilon, 1e-5) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.05])
def test_no_mechanism_that_keeps_to_the_claim_exceeds_the_chance(epsilon, delta):
    """With chance delta everything is told at once, else randomised response: (epsilon, delta)-DP and correlated."""
    canaries, accuracy = 12, 1 / (1 + math.exp(-epsilon))
    for correct in range(canaries + 1):
        happens = delta + (1 - delta) * stats.binom.sf(correct - 1, canaries, accuracy)
        allowed = chance_of_correct(canaries, canaries, correct, epsilon, delta)
        assert happens <= allowed + 1e-12
        if delta == 0:
            assert happens == pytest.approx(allowed)  # and randomised response reaches it


def test_the_bound_keeps_to_its_confidence_and_finds_more_leakage():
    rng = np.random.default_rng(1)
    bounds = [one_run_bound(*randomised_response(rng, 800, 1.0), delta=0.0).epsilon for _ in range(150)]
    assert sum(bound > 1.0 for bound in bounds) <= stats.binom.ppf(0.999, 150, 0.05)
    assert np.median(bounds) > 0.7
    assert one_run_bound(*randomised_response(rng, 4000, 1.3), delta=0.0).epsilon > 1.0


def test_noise_shows_nothing():
    rng = np.random.default_rng(2)
    shown = [one_run_bound(rng.random(200), rng.random(200) < 0.5, delta=1e-5).epsilon > 0 for _ in range(100)]
    assert sum(shown) <= stats.binom.ppf(0.999, 100, 0.05)


def test_several_numbers_of_guesses_are_paid_for():
    scores, included = np.arange(64.0), np.arange(64) >= 32
    alone = one_run_bound(scores, included, delta=0.0, guesses=[Guesses.balanced(64)])
    assert alone.epsilon == pytest.approx(math.log(0.05 ** (1 / 64) / (1 - 0.05 ** (1 / 64))))
    twice = one_run_bound(scores, included, delta=0.0, guesses=[Guesses.balanced(64)] * 2)
    assert twice.epsilon == pytest.approx(math.log(0.025 ** (1 / 64) / (1 - 0.025 ** (1 / 64))))
    assert alone.epsilon == alone.largest
    assert twice.largest < alone.largest


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(2, 300),
    share=st.floats(0, 1),
    epsilon=st.floats(0, 5),
    delta=st.sampled_from([0.0, 1e-6, 1e-3]),
    level=st.floats(1e-6, 0.3),
)
def test_bounds_are_monotone(total, share, epsilon, delta, level):
    correct = round(share * (total - 1))

    def bound(correct, delta=delta, level=level):
        return largest_rejected(lambda epsilon: chance_of_correct(total, total, correct, epsilon, delta), level)

    assert bound(correct) <= bound(correct + 1)
    assert bound(correct, delta=delta + 1e-3) <= bound(correct)
    assert bound(correct, level=level / 2) <= bound(correct)
    assert chance_of_correct(total, total, correct, epsilon, delta) <= 1


def test_guesses_follow_the_scores():
    evidence = Evidence.of([0.1, math.inf, -math.inf, 0.1, 0.2], np.array([True, True, False, False, True]))
    assert list(evidence.ordered) == [True, True, True, False, False]  # the first of two equal scores comes first
    assert evidence.correct(Guesses(3, 2)) == 5
    assert evidence.correct(Guesses(4, 0)) == 3
    assert evidence.correct(Guesses(0, 3)) == 2
    assert [guesses.total for guesses in halving(100)] == [100, 50, 25]
    assert [guesses.total for guesses in halving(5)] == [5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scores": [1.0], "included": np.array([True, False])}, "one length"),
        ({"scores": [], "included": np.array([], dtype=bool)}, "one length"),
        ({"scores": [1.0], "included": np.array([1])}, "true or false"),
        ({"scores": [math.nan], "included": np.array([True])}, "1 of 1 are not numbers"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"delta": -0.1}, "delta=-0.1"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"guesses": []}, "guesses="),
        ({"guesses": [Guesses(1, 1)]}, "at most the 1 canaries"),
    ],
)
def test_bad_evidence_is_refused(arguments, message):
    usual = {"scores": [1.0], "included": np.array([True]), "delta": 0.0}
    with pytest.raises(InputError, match=message):
        one_run_bound(**(usual | arguments))


def test_a_guess_about_nothing_is_refused():
    with pytest.raises(InputError, match=r"inside \+ outside=0"):
        Guesses(0, 0)


def test_a_bound_never_lies_above_the_largest():
    with pytest.raises(InputError, match="between 0 and the largest"):
        LowerBound(2.0, 0.0, 0.95, 1.0, "none")
    assert LowerBound(1.0, 0.0, 0.95, 1.0, "some").to_dict()["largest"] == 1.0
