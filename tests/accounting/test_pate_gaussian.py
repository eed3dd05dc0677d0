"""GNMax and the threshold test: the bounds of 2018 against the exact output distributions and a plain, slow twin."""

import math

import mpmath
import numpy as np
import pytest
from pate_votes import moved_votes
from scipy import stats

from tacit.accounting import epsilon
from tacit.accounting.pate import (
    confident_gnmax_divergences,
    confident_gnmax_epsilon,
    confident_gnmax_event,
    gaussian_log_rarity,
    gnmax_divergences,
    gnmax_epsilon,
    gnmax_event,
    threshold_divergences,
    threshold_event,
)
from tacit.accounting.pate.gaussian import rare_divergences
from tacit.accounting.renyi import ORDERS, RenyiAccountant
from tacit.core import InputError, Neighbours

SMALL_VOTES = [[8, 2], [10, 0], [5, 5], [12, 0, 0], [9, 2, 1], [4, 4, 4], [7, 5, 0], [15, 1, 0, 0], [40, 0, 0]]
SIGMAS = [0.5, 1.0, 2.0, 5.0]
SOME_ORDERS = [1.1, 1.5, 2.0, 5.0, 12.0]


def exact_answers(row: list[int], sigma: float) -> np.ndarray:
    """log chance of each answer, by the trapezoidal rule, which is spectrally accurate on a line."""
    counts = np.asarray(row, dtype=float)
    x = np.linspace(counts.min() - 14 * sigma, counts.max() + 14 * sigma, 3001)
    density = stats.norm.logpdf(x[:, None], counts, sigma)
    below = stats.norm.logcdf(x[:, None], counts, sigma)
    terms = [density[:, j] + np.delete(below, j, axis=1).sum(axis=1) for j in range(len(row))]
    return np.logaddexp.reduce(terms, axis=1) + math.log(x[1] - x[0])


def exact_divergences(row: list[int], sigma: float, orders: list[float]) -> list[float]:
    here, others = exact_answers(row, sigma), [exact_answers(other, sigma) for other in moved_votes(row)]
    return [
        max(np.logaddexp.reduce(order * here + (1 - order) * there) for there in others) / (order - 1)
        for order in orders
    ]


def plain_divergence(log_q: float, sigma: float, order: float) -> float:
    """Theorem 6 with proposition 10, as they are written, in 60 digits."""
    with mpmath.workdps(60):
        q, s, lam = mpmath.exp(log_q), mpmath.mpf(sigma), mpmath.mpf(order)
        independent = lam / s**2
        mu2 = s * mpmath.sqrt(mpmath.log(1 / q))
        mu1 = mu2 + 1
        if mu2 <= 1 or lam > mu1:
            return float(independent)
        e1, e2 = mu1 / s**2, mu2 / s**2
        if q > mpmath.exp((mu2 - 1) * e2) / (mu1 / (mu1 - 1) * mu2 / (mu2 - 1)) ** mu2:
            return float(independent)
        a = (1 - q) / (1 - (q * mpmath.exp(e2)) ** (1 - 1 / mu2))
        b = mpmath.exp(e1) / q ** (1 / (mu1 - 1))
        return float(min(independent, mpmath.log((1 - q) * a ** (lam - 1) + q * b ** (lam - 1)) / (lam - 1)))


@pytest.mark.parametrize("row", SMALL_VOTES)
@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_bound_is_at_least_the_exact_divergence_for_every_neighbour(row: list[int], sigma: float) -> None:
    bounds = gnmax_divergences([row], sigma, SOME_ORDERS)[0]
    assert (bounds >= np.asarray(exact_divergences(row, sigma, SOME_ORDERS)) - 1e-11).all()
    assert (bounds <= np.asarray(SOME_ORDERS) / sigma**2 * (1 + 1e-12)).all()


@pytest.mark.parametrize("row", SMALL_VOTES)
def test_proposition_7_is_at_least_the_exact_chance_and_exact_with_two_classes(row: list[int]) -> None:
    missed = 1 - math.exp(exact_answers(row, 2.0)[np.argmax(row)])
    q = math.exp(gaussian_log_rarity([row], 2.0)[0])
    assert q >= missed - 1e-12
    if len(row) == 2:
        assert q == pytest.approx(missed, rel=1e-6)


@pytest.mark.parametrize("sigma", [1.0, 10.0, 40.0, 100.0])
def test_the_fast_bound_equals_the_plain_one(sigma: float) -> None:
    log_q = [-1e-3, -0.5, -1.0, -3.0, -9.0, -30.0, -200.0, -5000.0]
    orders = [1.02, 2.0, 7.5, 20.0, 64.0, 1000.0]
    expected = [[plain_divergence(each, sigma, order) for order in orders] for each in log_q]
    np.testing.assert_allclose(rare_divergences(log_q, sigma, orders), expected, rtol=1e-9, atol=1e-13)
    if sigma >= 10:
        assert (rare_divergences([-30.0], sigma, [7.5]) < 7.5 / sigma**2 / 10).all()


def test_values_worked_out_by_hand() -> None:
    # Gap 100 with sigma 40 and two classes: q = erfc(1.25) / 2.
    assert math.exp(gaussian_log_rarity([[175, 75]], 40.0)[0]) == pytest.approx(math.erfc(1.25) / 2, rel=1e-13)
    # A tie is capped at 1 - 1/3 and gives no more than the data-independent 2 / 16.
    assert math.exp(gaussian_log_rarity([[5, 5, 5]], 4.0)[0]) == pytest.approx(2 / 3)
    assert gnmax_divergences([[5, 5, 5]], 4.0, [2.0])[0, 0] == 0.125


@pytest.mark.parametrize("highest", [0, 9, 16, 17, 30])
@pytest.mark.parametrize("order", [1.5, 4.0, 25.0])
def test_the_threshold_bound_is_the_exact_divergence(highest: int, order: float) -> None:
    sigma, threshold = 3.0, 16.0

    def coin(count: float) -> tuple[mpmath.mpf, mpmath.mpf]:
        return mpmath.ncdf((count - threshold) / sigma), mpmath.ncdf((threshold - count) / sigma)

    with mpmath.workdps(40):
        exact = max(
            mpmath.log(sum(p**order * r ** (1 - order) for p, r in zip(coin(highest), coin(other), strict=True)))
            for other in (highest - 1, highest + 1)
        ) / (order - 1)
    ours = threshold_divergences([highest], threshold, sigma, [order])[0, 0]
    assert ours == pytest.approx(float(exact), rel=1e-7, abs=1e-15)
    assert ours <= order / (2 * sigma**2)
    nearer = stats.norm.logcdf(-abs(highest - threshold) / sigma)
    assert ours <= plain_divergence(float(nearer), math.sqrt(2) * sigma, order) * (1 + 1e-9)


def test_a_test_far_from_its_threshold_costs_nothing() -> None:
    assert threshold_divergences([10**6, -(10**6)], 0.0, 1.0).max() < 1e-12


def test_only_answered_queries_pay_for_an_answer() -> None:
    votes = np.asarray([[60, 40], [90, 10], [55, 45]])
    answered = np.asarray([False, True, False])
    each = confident_gnmax_divergences(votes, answered, threshold=70, sigma1=15, sigma2=6, orders=[2.0, 9.0])
    tests = threshold_divergences([60, 90, 55], 70, 15, [2.0, 9.0])
    np.testing.assert_allclose(each[[0, 2]], tests[[0, 2]])
    np.testing.assert_allclose(each[1], tests[1] + gnmax_divergences(votes[1:2], 6, [2.0, 9.0])[0])


def test_the_interactive_test_sees_the_counts_less_the_baseline() -> None:
    votes, baseline = [[60, 40], [90, 10]], [[58, 42], [20, 80]]
    each = confident_gnmax_divergences(
        votes, np.zeros(2, dtype=bool), threshold=35, sigma1=15, sigma2=6, orders=[3.0], baseline=baseline
    )
    np.testing.assert_allclose(each, threshold_divergences([2, 70], 35, 15, [3.0]))


def test_agreement_lowers_epsilon_far_below_the_data_independent_one() -> None:
    votes, answered = np.asarray([[240, 10] + [0] * 8] * 600), np.arange(600) % 2 == 0
    terms = {"threshold": 200.0, "sigma1": 150.0, "sigma2": 40.0}
    private = confident_gnmax_epsilon(votes, answered, 1e-5, **terms, teachers=250).unsafe_value
    public = epsilon(confident_gnmax_event(600, 300, sigma1=150.0, sigma2=40.0), 1e-5, accountant="rdp")
    assert 0.1 < private < public / 2
    disputed = np.asarray([[125, 125] + [0] * 8] * 300)
    event = confident_gnmax_event(0, 300, sigma1=150.0, sigma2=40.0)
    assert gnmax_epsilon(disputed, 40.0, 1e-5).unsafe_value == pytest.approx(epsilon(event, 1e-5, accountant="rdp"))


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_events_have_the_data_independent_divergences(neighbours: Neighbours) -> None:
    accountant = RenyiAccountant()
    answers = accountant.divergences(gnmax_event(40.0, neighbours), neighbours)
    np.testing.assert_allclose(answers, ORDERS / 40.0**2, rtol=1e-12)
    tests = accountant.divergences(threshold_event(150.0, neighbours), neighbours)
    np.testing.assert_allclose(tests, ORDERS / (2 * 150.0**2), rtol=1e-12)


@pytest.mark.parametrize("sigma", [1e-3, 1.0, 1e6])
def test_extreme_votes_stay_finite(sigma: float) -> None:
    votes = [[10**6, 0, 0], [0, 0, 10**6], [500_000, 500_000, 0], [333_334, 333_333, 333_333]]
    found = gnmax_divergences(votes, sigma)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert found[0] == pytest.approx(found[1])


def test_one_class_and_no_queries_cost_nothing() -> None:
    assert not gnmax_divergences([[7], [7]], 1.0).any()
    assert gnmax_divergences(np.zeros((0, 10), dtype=int), 1.0).shape == (0, len(ORDERS))
    assert gnmax_epsilon([[7]], 1.0, 1e-5).unsafe_value == 0


@pytest.mark.parametrize(
    ("answered", "baseline", "message"),
    [
        ([True], None, "one truth value"),
        ([1, 0], None, "one truth value"),
        ([True, False], [[1, 2]], "shape of the votes"),
        ([True, False], [[0.5, 1], [1, 1]], "whole numbers"),
    ],
)
def test_bad_input_is_refused(answered: object, baseline: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        confident_gnmax_divergences(
            [[6, 4], [9, 1]],
            answered,
            threshold=7,
            sigma1=2,
            sigma2=1,
            baseline=baseline,  # type: ignore[arg-type]
        )
    with pytest.raises(InputError, match="above 1"):
        gnmax_divergences([[6, 4]], 1.0, [1.0])
