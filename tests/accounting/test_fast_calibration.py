"""Quick ways to the same certified answers: estimates, searches and remembered values against slow oracles."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tacit import accounting
from tacit.accounting import LossDistributionAccountant, delta, dominating, dpsgd_event, epsilon, gaussian_epsilon
from tacit.accounting.budget_gap import BudgetGap
from tacit.accounting.events import event_key, flatten
from tacit.accounting.groups import GroupAccountant
from tacit.accounting.privacy_curve import PrivacyCurve
from tacit.accounting.search import TOLERANCE, Start, approximate_root, largest_feasible, least_feasible, least_within
from tacit.core import Budget, Neighbours

PLD = LossDistributionAccountant()
RATES = st.floats(-4, 0).map(lambda x: 10**x)
STEPS = st.floats(0, 5).map(lambda x: round(10**x))
TARGETS = st.floats(math.log(0.1), math.log(50)).map(math.exp)
DELTAS = st.floats(-12, -5).map(lambda x: 10**x)


def slow_noise(rate: float, steps: int, target: float, at: float) -> float:
    """Bisection over the whole range with nothing but the full accountant, in both directions at every point."""
    low, high = math.log(1e-3), math.log(1e7)
    while high - low > TOLERANCE / 8:
        middle = (low + high) / 2
        spent = epsilon(dpsgd_event(rate, math.exp(middle), steps), at)
        low, high = (low, middle) if spent <= target else (middle, high)
    return math.exp(high)


@given(RATES, STEPS, TARGETS, DELTAS)
@settings(max_examples=12)
def test_calibration_finds_what_a_slow_search_finds(rate: float, steps: int, target: float, at: float) -> None:
    noise = accounting.calibrate_dpsgd_noise(rate, steps, Budget(target, at))
    assert epsilon(dpsgd_event(rate, noise, steps), at) <= target
    assert noise == pytest.approx(slow_noise(rate, steps, target, at), rel=1.5 * TOLERANCE)


@given(RATES, STEPS, DELTAS, st.tuples(TARGETS, TARGETS))
@settings(max_examples=10)
def test_a_larger_budget_never_takes_more_noise(
    rate: float, steps: int, at: float, targets: tuple[float, float]
) -> None:
    smaller, larger = sorted(targets)
    noises = [accounting.calibrate_dpsgd_noise(rate, steps, Budget(target, at)) for target in (smaller, larger)]
    assert noises[1] <= noises[0] * (1 + TOLERANCE)


@given(RATES, st.floats(math.log(0.4), math.log(100)).map(math.exp), STEPS, DELTAS)
@settings(max_examples=40)
def test_the_epsilon_is_the_larger_of_both_directions_in_full(q: float, sigma: float, steps: int, at: float) -> None:
    assume(q < 1)
    pair = dominating.poisson_sampled(dominating.gaussian(sigma), q)
    both = [PrivacyCurve((one,), (steps,)).epsilon(at) for one in (pair, pair.reversed())]
    assert epsilon(dpsgd_event(q, sigma, steps), at) == pytest.approx(max(both), rel=1e-9, abs=1e-12)


@given(RATES, st.floats(math.log(0.4), math.log(100)).map(math.exp), STEPS, DELTAS, st.floats(0.5, 2))
@settings(max_examples=40)
def test_stopping_early_says_truly_on_which_side_epsilon_lies(
    q: float, sigma: float, steps: int, at: float, factor: float
) -> None:
    event = dpsgd_event(q, sigma, steps)
    spent = epsilon(event, at)
    limit = factor * spent
    stopped = PLD.epsilon(event, at, Neighbours.ADD_REMOVE, stop_above=limit)
    assert stopped <= spent
    assert (stopped > limit) == (spent > limit)
    if spent <= limit:
        assert stopped == spent


def test_stopping_early_sees_a_record_that_costs_more_when_added() -> None:
    event = dp_event.SelfComposedDpEvent(dp_event.RandomizedResponseDpEvent(0.1, 2), 3)
    spent = epsilon(event, 1e-5, neighbours=Neighbours.ZERO_OUT)
    for limit in (0.5 * spent, 0.999 * spent):
        assert PLD.epsilon(event, 1e-5, Neighbours.ZERO_OUT, stop_above=limit) > limit


@given(RATES, st.floats(math.log(0.4), math.log(100)).map(math.exp), STEPS, DELTAS)
@settings(max_examples=60)
def test_estimates_are_close_enough_to_start_from(q: float, sigma: float, steps: int, at: float) -> None:
    event = dpsgd_event(q, sigma, steps)
    spent = epsilon(event, at)
    if 0.05 < spent < 100:
        assert PLD.estimate(event, at, Neighbours.ADD_REMOVE) == pytest.approx(spent, rel=0.1)


@pytest.mark.parametrize("target", [0.1, 1.0, 8.0])
@pytest.mark.parametrize(("rate", "steps"), [(0.01, 10_000), (0.0085, 4000), (0.1, 100), (0.5, 1000)])
def test_usual_calibrations_need_three_certified_looks_at_most(
    rate: float, steps: int, target: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    certified = BudgetGap.certified

    def counted(self: BudgetGap, event: dp_event.DpEvent) -> float:
        looks.append(event)
        return certified(self, event)

    monkeypatch.setattr(BudgetGap, "certified", counted)
    accounting.calibrate_dpsgd_noise(rate, steps, Budget(target, 1e-5))
    assert len(looks) <= 3


def test_remembered_answers_are_those_of_the_same_question_only() -> None:
    event = dpsgd_event(0.013, 1.1, 321)
    first = epsilon(event, 1e-5)
    assert epsilon(dp_event.ComposedDpEvent([event]), 1e-5) == first
    near_misses = [
        epsilon(dpsgd_event(0.013, math.nextafter(1.1, 2) + 1e-9, 321), 1e-5),
        epsilon(dpsgd_event(0.013 + 1e-9, 1.1, 321), 1e-5),
        epsilon(dpsgd_event(0.013, 1.1, 322), 1e-5),
        epsilon(event, 1.0001e-5),
        epsilon(event, 1e-5, neighbours=Neighbours.REPLACE_ONE),
        epsilon(dp_event.ComposedDpEvent([event, dp_event.GaussianDpEvent(1e3)]), 1e-5),
    ]
    assert len({first, *near_misses}) == 1 + len(near_misses)
    assert delta(event, first) != delta(event, 1.001 * first)


def test_events_whose_text_is_abbreviated_are_not_taken_for_each_other() -> None:
    weights = np.full(2000, 1 / 2000)
    small, large = np.zeros(2000), np.zeros(2000)
    small[5:-5], large[5:-5] = 0.5, 1.5
    mixtures = [dp_event.MixtureOfGaussiansDpEvent(2.0, shifts, weights) for shifts in (small, large)]
    assert repr(mixtures[0]) == repr(mixtures[1])
    assert event_key(mixtures[0]) != event_key(mixtures[1])
    assert len(flatten(dp_event.ComposedDpEvent(mixtures))) == 2


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_sampling_at_rate_one_is_the_plain_gaussian(neighbours: Neighbours) -> None:
    moved = 2 if neighbours is Neighbours.REPLACE_ONE else 1
    found = epsilon(dpsgd_event(1.0, 30.0, 144), 1e-6, neighbours=neighbours)
    assert found == pytest.approx(gaussian_epsilon(30.0 / (12 * moved), 1e-6), rel=1e-12)


@given(st.floats(math.log(0.02), math.log(1e4)).map(math.exp), st.floats(-20, -0.5).map(lambda x: 10**x))
def test_the_gaussian_epsilon_ends_on_the_safe_side(noise: float, at: float) -> None:
    found = gaussian_epsilon(noise, at)
    assert accounting.gaussian_delta(noise, found) <= at
    if found > 0:
        assert accounting.gaussian_delta(noise, found * (1 - 1e-9)) > at * (1 - 1e-12)


@given(st.floats(1e-6, 1e6), st.floats(0.2, 5))
def test_least_within_never_lies_below(scale: float, power: float) -> None:
    def tail(x: float) -> float:
        return math.exp(-((x / scale) ** power))

    found = least_within(tail, 1e-7, 0.0, 1e12 * scale)
    assert tail(found) <= 1e-7
    assert found == pytest.approx(scale * math.log(1e7) ** (1 / power), rel=1e-11)
    assert least_within(tail, 1.0, 0.0, scale) == 0.0


@given(st.floats(-6, 15), st.floats(0.3, 20), st.floats(-0.1, 0.1))
def test_a_start_near_the_root_takes_few_evaluations_and_any_other_is_harmless(
    root: float, slope: float, error: float
) -> None:
    calls = []

    def gap(x: float) -> float:
        calls.append(x)
        return slope * (root - x)

    start = approximate_root(lambda x: slope * (root + error * TOLERANCE - x), Start(0.0), -6.9, 16.2)
    found = least_feasible(gap, start, -6.9, 16.2)
    assert len(calls) <= 4
    assert root <= found <= root + TOLERANCE
    misled = least_feasible(gap, Start(root + 50 * error, rate=5.0), -6.9, 16.2)
    assert root <= misled <= root + TOLERANCE


def test_an_estimate_that_is_not_there_leaves_the_start() -> None:
    assert approximate_root(lambda _: math.nan, Start(1.5, rate=2.0), 0.0, 3.0) == Start(1.5, rate=2.0)


@given(st.integers(1, 10**7), st.floats(0.2, 2), st.integers(1, 10**8))
def test_largest_feasible_from_anywhere(limit: int, power: float, guess: int) -> None:
    start = Start(-math.log(guess), rate=0.5)
    assert largest_feasible(lambda n: power * math.log(n / (limit + 0.5)), 10**9, start) == limit
    assert largest_feasible(lambda _: 1.0, 10**9, start) == 0
    assert largest_feasible(lambda _: -1.0, 10**9, start) == 10**9


def test_groups_estimate_what_they_certify() -> None:
    accountant = GroupAccountant(PLD, 3)
    event = dpsgd_event(0.01, 2.0, 1000)
    spent = accountant.epsilon(event, 1e-5, Neighbours.ADD_REMOVE)
    assert accountant.estimate(event, 1e-5, Neighbours.ADD_REMOVE) == pytest.approx(spent, rel=0.02)
    assert accountant.delta(event, spent, Neighbours.ADD_REMOVE) <= 1e-5
    assert np.isfinite(spent)
