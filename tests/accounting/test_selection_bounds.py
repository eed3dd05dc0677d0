"""Private selection: the true divergence of "run K times, return the best" against the bounds, on toy mechanisms."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from selection_oracle import best_of, both_ways, probabilities_of_counts

from tacit.accounting import RenyiAccountant, dpsgd_event, epsilon
from tacit.accounting.conversion import rdp_to_delta
from tacit.accounting.renyi import ORDERS
from tacit.accounting.selection import (
    Poisson,
    TrialCount,
    TruncatedNegativeBinomial,
    approximate_selection_delta,
    pure_selection_epsilon,
    selection_divergences,
    selection_event,
    trial_count_of,
)
from tacit.accounting.worst_of import WorstOfDpEvent
from tacit.core import InputError, Neighbours, UnsupportedError

SOME_ORDERS = ORDERS[ORDERS < 600][::3]
COUNTS = [
    *(TruncatedNegativeBinomial.with_mean(4, shape) for shape in (-0.5, 0, 0.5, 1, 2.5)),
    TruncatedNegativeBinomial(0, 0.02),
    TruncatedNegativeBinomial(1, 0.02),
    Poisson(1),
    Poisson(8),
]


def nearly_tight(epsilon: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """A rare middle outcome that one data set makes likelier, below a top that it makes less likely."""
    rare, top, factor = 1e-3, 0.3, math.exp(epsilon)
    return (
        np.array([1 - rare * factor - top, rare * factor, top]),
        np.array([1 - rare - top * factor, rare, top * factor]),
    )


def rare_top() -> tuple[np.ndarray, np.ndarray]:
    """An outcome that one data set makes a million times as likely, and that is best and rare."""
    return np.array([1 - 1e-8, 1e-8]), np.array([1 - 1e-14, 1e-14])


def below_a_likely_top() -> tuple[np.ndarray, np.ndarray]:
    """A middle that one data set makes likelier by far, below a top that it makes as much less likely.

    Each term of the bounds counts here: they are tight to two in a hundred.
    """
    one, other = np.exp([0.0, -10.0, -7.0]), np.exp([0.0, -32.0, 3.2])
    return one / one.sum(), other / other.sum()


def true_over_bound(
    pair: tuple[np.ndarray, np.ndarray], trials: TrialCount, claimed: TrialCount | None = None
) -> float:
    """The largest ratio of what is true for ``trials`` to what is claimed; above 1 a bound is no bound."""
    one = np.array([both_ways(*pair, order) for order in SOME_ORDERS])
    bounds = selection_divergences(SOME_ORDERS, one, claimed or trials)
    selected = [best_of(outcomes, trials) for outcomes in pair]
    return max(both_ways(*selected, order) / bound for order, bound in zip(SOME_ORDERS, bounds, strict=True))


@pytest.mark.parametrize("trials", COUNTS, ids=str)
def test_oracle_itself_enumerates_sequences(trials: TrialCount) -> None:
    outcomes = np.array([0.5, 0.2, 0.3])
    counts = probabilities_of_counts(trials, 4)
    expected = np.zeros(3)
    for k in range(1, 5):
        for sequence in itertools.product(range(3), repeat=k):
            expected[max(sequence)] += counts[k] * np.prod(outcomes[list(sequence)])
    long = probabilities_of_counts(trials, 3000)
    rest = best_of(outcomes, trials)[:3] - expected
    up_to = np.cumsum(outcomes)
    k = np.arange(5, 3001)
    beyond = [float(long[5:] @ (up_to[y] ** k - (up_to[y] - outcomes[y]) ** k)) for y in range(3)]
    np.testing.assert_allclose(rest, beyond, atol=1e-9)


@pytest.mark.parametrize("trials", COUNTS, ids=str)
def test_mean_is_that_of_the_definition(trials: TrialCount) -> None:
    counts = probabilities_of_counts(trials, 6000)
    assert counts.sum() == pytest.approx(1, abs=1e-9)
    assert trials.mean == pytest.approx(float(counts @ np.arange(6001)), rel=1e-7)


@pytest.mark.parametrize("trials", COUNTS, ids=str)
@pytest.mark.parametrize(
    "pair",
    [nearly_tight(), nearly_tight(0.05), nearly_tight(1.1), rare_top(), below_a_likely_top()],
    ids=["tight", "tight, small", "tight, large", "rare top", "likely top"],
)
def test_true_divergence_stays_below_the_bound(pair: tuple[np.ndarray, np.ndarray], trials: TrialCount) -> None:
    assert true_over_bound(pair, trials) <= 1 + 1e-7


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.02, 1), min_size=4, max_size=4),
    st.lists(st.floats(0.02, 1), min_size=4, max_size=4),
    st.sampled_from(COUNTS),
)
def test_true_divergence_stays_below_the_bound_for_any_toy(p: list[float], q: list[float], trials: TrialCount) -> None:
    pair = np.array(p) / sum(p), np.array(q) / sum(q)
    if both_ways(*pair, 2.0) > 1e-6:
        assert true_over_bound(pair, trials) <= 1 + 1e-7


def with_fewer(trials: TrialCount, factor: float) -> TrialCount:
    """Fewer trials: a larger gamma, or a smaller mean."""
    if isinstance(trials, Poisson):
        return Poisson(trials.mean / factor)
    return TruncatedNegativeBinomial(trials.shape, trials.gamma * factor)


@pytest.mark.parametrize("trials", [count for count in COUNTS if count.mean > 2], ids=str)
def test_planted_bug_fewer_trials_counted_than_made_is_caught(trials: TrialCount) -> None:
    """Twice the gamma, and a near miss: a quarter more."""
    pair = below_a_likely_top()
    assert 0.98 < true_over_bound(pair, trials) <= 1
    assert true_over_bound(pair, trials, with_fewer(trials, 1.25)) > 1.005
    assert true_over_bound(pair, trials, with_fewer(trials, 2)) > 1.05


@pytest.mark.parametrize("trials", [count for count in COUNTS if count.mean > 2], ids=str)
@pytest.mark.parametrize("pair", [nearly_tight(), rare_top(), below_a_likely_top()], ids=range(3))
def test_delta_of_the_divergences_is_above_the_exact_privacy_curve(
    pair: tuple[np.ndarray, np.ndarray], trials: TrialCount
) -> None:
    """The hockey-stick divergence of the enumerated selection, which rests on no theorem, in both directions."""
    one = np.array([both_ways(*pair, order) for order in SOME_ORDERS])
    divergences = selection_divergences(SOME_ORDERS, one, trials)
    selected = [best_of(outcomes, trials) for outcomes in pair]
    for at in (0.1, 0.5, 1.0, 2.0, 5.0, 12.0, 30.0):
        bound = min(rdp_to_delta(order, each, at) for order, each in zip(SOME_ORDERS, divergences, strict=True))
        assert hockey_stick(*selected, at) <= bound * (1 + 1e-7) + 1e-12


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0])
def test_planted_bug_a_shape_less_by_one_is_caught(shape: float) -> None:
    trials = TruncatedNegativeBinomial(shape, 0.01)
    assert 0.93 < true_over_bound(nearly_tight(), trials) <= 1
    assert true_over_bound(nearly_tight(), trials, TruncatedNegativeBinomial(shape - 1, 0.01)) > 1.2


def test_planted_bug_a_poisson_mean_that_is_too_small_is_caught() -> None:
    assert 0.8 < true_over_bound(rare_top(), Poisson(10)) <= 1
    assert true_over_bound(rare_top(), Poisson(10), Poisson(2)) > 1.01


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0])
def test_pure_bound_is_nearly_tight_and_holds(shape: float) -> None:
    trials = TruncatedNegativeBinomial(shape, 0.01)
    p, q = (best_of(outcomes, trials)[:3] for outcomes in nearly_tight(0.5))
    largest = float(np.max(np.abs(np.log(p / q))))
    bound = pure_selection_epsilon(0.5, trials)
    assert bound == pytest.approx((2 + shape) * 0.5)
    assert 0.96 * bound < largest <= bound


def test_pure_bound_is_the_limit_of_the_divergences() -> None:
    trials = TruncatedNegativeBinomial(1, 0.1)
    orders = np.array([1e9, 1e10])
    found = selection_divergences(orders, np.array([0.5, 0.5]), trials)
    assert found[-1] == pytest.approx(pure_selection_epsilon(0.5, trials), rel=1e-6)


def hockey_stick(p: np.ndarray, q: np.ndarray, at: float) -> float:
    return max(
        float(np.maximum(p - math.exp(at) * q, 0).sum()),
        float(np.maximum(q - math.exp(at) * p, 0).sum()),
    )


@pytest.mark.parametrize("trials", [count for count in COUNTS if not isinstance(count, Poisson)], ids=str)
@pytest.mark.parametrize("pair", [nearly_tight(), rare_top()], ids=range(2))
def test_approximate_bound_holds_on_the_exact_privacy_curve(
    pair: tuple[np.ndarray, np.ndarray], trials: TruncatedNegativeBinomial
) -> None:
    selected = [best_of(outcomes, trials) for outcomes in pair]
    for at in (0.0, 0.3, 1.0, 2.0, 12.0):
        bounds = [approximate_selection_delta(lambda e: hockey_stick(*pair, e), at, e1, trials) for e1 in (0, 0.3, 0.5)]
        assert hockey_stick(*selected, at) <= min(bounds) * (1 + 1e-7) + 1e-12


@pytest.mark.parametrize("trials", [count for count in COUNTS if not isinstance(count, Poisson)], ids=str)
@pytest.mark.parametrize("inner", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_approximate_bound_begins_where_the_generating_function_says(
    trials: TruncatedNegativeBinomial, inner: float, share: float
) -> None:
    """It says nothing below ln C, and C is no less than any f'(F) / f'(F') that a trial allows, by f's own series."""
    delta = share / trials.mean
    counts, k = probabilities_of_counts(trials, 3000)[1:], np.arange(1, 3001)
    beyond = np.concatenate([[0.0], np.geomspace(1e-9, 1, 60)])  # 1 - F
    beyond_other = np.minimum(1.0, math.exp(inner) * beyond + delta)
    slopes, other_slopes = (counts * k @ (1 - places) ** (k - 1)[:, None] for places in (beyond, beyond_other))
    begins = math.log(np.max(slopes / other_slopes))

    def bound(at: float) -> float:
        return approximate_selection_delta(lambda _: delta, at, inner, trials)

    if begins > 1e-6:
        assert bound(begins * (1 - 1e-6)) == 1
    at_the_top = math.log(slopes[0] / other_slopes[0])
    assert bound(max(at_the_top, (1 + trials.shape) * inner) * (1 + 1e-6)) == pytest.approx(share)


def test_approximate_bound_is_the_pure_one_without_delta_and_counts_the_mean_with_it() -> None:
    trials = TruncatedNegativeBinomial(1, 0.1)
    pure = lambda e: 0.0 if e >= 0.5 else 1.0  # noqa: E731 - a curve
    assert approximate_selection_delta(pure, 1.5, 0.5, trials) == 0
    assert approximate_selection_delta(pure, 1.49, 0.5, trials) == 1
    p, q = rare_top()
    selected = [best_of(outcomes, trials) for outcomes in (p, q)]
    bound = approximate_selection_delta(lambda e: hockey_stick(p, q, e), 1.0, 0.0, trials)
    true = hockey_stick(*selected, 1.0)
    assert 0.99 * bound < true <= bound * (1 + 1e-9)
    assert true > 1.5 * bound / trials.mean  # a bound that forgot the mean would be none


@pytest.mark.parametrize("trials", [count for count in COUNTS if count.shape >= 0], ids=str)
def test_equals_dp_accounting(trials: TrialCount) -> None:
    one = RenyiAccountant().divergences(dpsgd_event(0.1, 2.0, 50), Neighbours.ADD_REMOVE)
    theirs = rdp_privacy_accountant._compute_rdp_repeat_and_select(ORDERS, one, trials.mean, trials.shape)
    # For Poisson it does not use that divergences grow with the order.
    lowest = np.minimum.accumulate(np.asarray(theirs)[::-1])[::-1]
    np.testing.assert_allclose(selection_divergences(ORDERS, one, trials), lowest, rtol=1e-7)


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 3), st.floats(0, 3), st.floats(1.01, 50), st.floats(1.01, 50), st.floats(1, 20), st.floats(1, 20))
def test_costs_more_with_shape_mean_and_less_noise(
    shape: float, shape2: float, mean: float, mean2: float, noise: float, noise2: float
) -> None:
    def divergences(noise: float, trials: TrialCount) -> np.ndarray:
        return selection_divergences(SOME_ORDERS, SOME_ORDERS / (2 * noise**2), trials)

    (less, more), (few, many), (loud, quiet) = sorted((shape, shape2)), sorted((mean, mean2)), sorted((noise, noise2))
    gamma = 1 / many
    make = TruncatedNegativeBinomial
    slack = 1 + 1e-9
    assert np.all(divergences(loud, make(less, gamma)) <= divergences(loud, make(more, gamma)) * slack)
    assert np.all(divergences(loud, make(less, 1 / few)) <= divergences(loud, make(less, gamma)) * slack)
    assert np.all(divergences(loud, Poisson(few)) <= divergences(loud, Poisson(many)) * slack)
    for trials in (make(less, gamma), Poisson(many)):
        assert np.all(divergences(quiet, trials) <= divergences(loud, trials) * slack)
        assert np.all(divergences(loud, trials) >= SOME_ORDERS / (2 * loud**2) - 1e-12)


@settings(max_examples=50, deadline=None)
@given(st.floats(1, 1e4), st.floats(0, 5))
def test_event_never_counts_fewer_trials_than_are_drawn(mean: float, shape: float) -> None:
    trials = TruncatedNegativeBinomial.with_mean(mean, shape)
    assert trials.mean == pytest.approx(mean, rel=1e-9)
    counted = trial_count_of(selection_event(dp_event.GaussianDpEvent(1.0), trials))
    assert isinstance(counted, TruncatedNegativeBinomial)
    assert counted.gamma <= trials.gamma
    assert counted.mean >= trials.mean


def test_one_trial_costs_what_it_costs() -> None:
    event = dpsgd_event(0.1, 2.0, 50)
    alone = epsilon(event, 1e-5, accountant="rdp")
    once = dp_event.RepeatAndSelectDpEvent(event, 1.0, 0.0)
    assert epsilon(once, 1e-5, accountant="rdp") == pytest.approx(alone)
    assert pure_selection_epsilon(0.5, TruncatedNegativeBinomial(1, 1.0)) == 0.5


def test_the_worst_of_several_is_their_largest_divergence_and_counts_relations() -> None:
    sampled, plain = dpsgd_event(0.05, 1.0, 10), dp_event.GaussianDpEvent(3.0)
    accountant = RenyiAccountant()
    for neighbours in Neighbours:
        if not accountant.supports(sampled, neighbours):
            continue
        parts = [accountant.divergences(event, neighbours) for event in (sampled, plain)]
        assert np.any(parts[0] > parts[1])
        assert np.any(parts[0] < parts[1])
        worst = accountant.divergences(WorstOfDpEvent([sampled, plain]), neighbours)
        np.testing.assert_array_equal(worst, np.maximum(*parts))
    replaced = accountant.divergences(selection_event(plain, TruncatedNegativeBinomial(1, 0.5)), Neighbours.REPLACE_ONE)
    halved = accountant.divergences(
        selection_event(dp_event.GaussianDpEvent(1.5), TruncatedNegativeBinomial(1, 0.5)), Neighbours.ADD_REMOVE
    )
    np.testing.assert_allclose(replaced, halved)


def test_selections_of_what_is_not_bounded_are_refused() -> None:
    unknown = WorstOfDpEvent([dp_event.GaussianDpEvent(1.0), dp_event.UnsupportedDpEvent()])
    for event in (unknown, dp_event.RepeatAndSelectDpEvent(unknown, 5.0, 1.0)):
        assert not RenyiAccountant().supports(event, Neighbours.ADD_REMOVE)
        with pytest.raises(UnsupportedError):
            epsilon(event, 1e-5, accountant="rdp")
    for name in ("pld", "basic", "strong-rigorous", "moments"):
        with pytest.raises(UnsupportedError):
            epsilon(WorstOfDpEvent([dp_event.GaussianDpEvent(1.0)]), 1e-5, accountant=name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TruncatedNegativeBinomial(-1, 0.5), "shape=-1: must be above -1"),
        (lambda: TruncatedNegativeBinomial(0, 0), "gamma=0: must be above 0"),
        (lambda: TruncatedNegativeBinomial.with_mean(0.5, 0), "mean=0.5: must be at least 1"),
        (lambda: TruncatedNegativeBinomial.with_mean(1e9, -0.99), "mean=1000000000.0: is too large"),
        (lambda: Poisson(0.9), "mean=0.9: must be at least 1"),
        (
            lambda: selection_event(dp_event.GaussianDpEvent(1.0), TruncatedNegativeBinomial(-0.5, 0.1)),
            "shape=-0.5: events know",
        ),
        (lambda: epsilon(WorstOfDpEvent([]), 1e-5, accountant="rdp"), r"events=\[\]: must hold at least one"),
    ],
)
def test_bad_values_are_named(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
