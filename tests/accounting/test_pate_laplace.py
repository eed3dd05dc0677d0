"""LNMax: the moments bound of 2017 against the exact output distribution and against a plain, slow twin."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from pate_votes import moved_votes

from tacit.accounting import delta as event_delta
from tacit.accounting import epsilon
from tacit.accounting.pate import (
    laplace_log_rarity,
    laplace_votes_moments,
    lnmax_epsilon,
    lnmax_event,
    moments_epsilon,
)
from tacit.core import InputError, Neighbours

SMALL_VOTES = [[8, 2], [10, 0], [5, 5], [12, 0, 0], [9, 2, 1], [4, 4, 4], [7, 5, 0], [15, 1, 0, 0]]


def exact_answers(row: list[int], gamma: float) -> np.ndarray:
    """The chance of each answer, by Gauss-Legendre quadrature between the kinks of the densities."""
    counts = np.asarray(row, dtype=float)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    kinks = np.unique(counts)
    tails = np.linspace(0, 60 / gamma, 16)
    edges = np.unique(np.concatenate([kinks[0] - tails, kinks, kinks[-1] + tails]))
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    x = (middle[:, None] + half[:, None] * nodes).ravel()
    w = (half[:, None] * weights).ravel()
    away = gamma * (x[:, None] - counts)
    below = np.where(away < 0, np.exp(np.minimum(away, 0)) / 2, 1 - np.exp(-np.maximum(away, 0)) / 2)
    density = gamma / 2 * np.exp(-np.abs(away))
    answers = [w @ (density[:, j] * np.delete(below, j, axis=1).prod(axis=1)) for j in range(len(row))]
    return np.asarray(answers)


def exact_log_moment(row: list[int], gamma: float, order: float) -> float:
    here = exact_answers(row, gamma)
    worst = [np.sum(here ** (order + 1) * exact_answers(other, gamma) ** -order) for other in moved_votes(row)]
    return math.log(max(worst))


def plain_log_moment(row: list[int], gamma: float, order: float) -> float:
    """The published formulas, one after the other, in 40 digits."""
    with mpmath.workdps(40):
        g = mpmath.mpf(gamma)
        ordered = sorted(row, reverse=True)
        q = sum((2 + g * (ordered[0] - n)) / (4 * mpmath.exp(g * (ordered[0] - n))) for n in ordered[1:])
        q = min(q, 1 - mpmath.mpf(1) / len(row))
        bounds = [2 * g * order, 2 * g**2 * order * (order + 1)]
        if q < (mpmath.exp(2 * g) - 1) / (mpmath.exp(4 * g) - 1):
            usual = (1 - q) * ((1 - q) / (1 - mpmath.exp(2 * g) * q)) ** order
            bounds.append(mpmath.log(usual + q * mpmath.exp(2 * g * order)))
        return float(min(bounds))


@pytest.mark.parametrize("row", SMALL_VOTES)
@pytest.mark.parametrize("gamma", [0.05, 0.4, 1.0])
def test_the_bound_is_at_least_the_exact_moment_for_every_neighbour(row: list[int], gamma: float) -> None:
    orders = [0.5, 1.0, 4.0, 8.0, 20.0]
    bounds = laplace_votes_moments([row], gamma, orders)[0]
    for order, bound in zip(orders, bounds, strict=True):
        assert bound >= exact_log_moment(row, gamma, order) - 1e-12


@pytest.mark.parametrize("row", SMALL_VOTES)
def test_lemma_4_is_at_least_the_exact_chance_and_exact_with_two_classes(row: list[int]) -> None:
    missed = 1 - exact_answers(row, 0.4)[np.argmax(row)]
    q = math.exp(laplace_log_rarity([row], 0.4)[0])
    assert q >= missed - 1e-12
    if len(row) == 2:
        assert q == pytest.approx(missed, rel=1e-9)


@pytest.mark.parametrize("gamma", [0.01, 0.05, 0.4, 3.0])
def test_the_fast_bound_equals_the_plain_one(gamma: float) -> None:
    random = np.random.default_rng(5)
    votes = random.multinomial(250, random.dirichlet(np.full(10, 0.2), size=40))
    orders = [1.0, 2.0, 8.0, 33.0]
    expected = [[plain_log_moment(row, gamma, order) for order in orders] for row in votes.tolist()]
    np.testing.assert_allclose(laplace_votes_moments(votes, gamma, orders), expected, rtol=1e-8, atol=1e-14)


def test_values_worked_out_by_hand() -> None:
    # Gap 6 at gamma 1/2: q = (2 + 3) / (4 e^3) = 0.06223, below 1 / (e + 1) = 0.2689.
    q = 5 / (4 * math.exp(3))
    assert math.exp(laplace_log_rarity([[8, 2]], 0.5)[0]) == pytest.approx(q, rel=1e-14)
    by_rarity = math.log((1 - q) ** 2 / (1 - math.e * q) + q * math.e)
    assert by_rarity == pytest.approx(0.20509, abs=1e-5)  # log(0.87941 / 0.83083 + 0.16917)
    assert laplace_votes_moments([[8, 2]], 0.5, [1.0])[0, 0] == pytest.approx(by_rarity, rel=1e-13)
    # A tie has q = 1/2: nothing but 2 gamma^2 l (l + 1) = 0.04 and, for large l, 2 gamma l = 2 are left.
    np.testing.assert_allclose(laplace_votes_moments([[5, 5]], 0.1, [1.0, 10.0]), [[0.04, 2.0]], rtol=1e-14)


def test_agreement_makes_the_bound_smaller_than_without_a_look_at_the_votes() -> None:
    certain, disputed = laplace_votes_moments([[250, 0, 0], [130, 120, 0]], 0.05, [8.0])[:, 0]
    assert disputed == pytest.approx(2 * 0.05**2 * 8 * 9)
    assert certain < disputed / 100


def test_the_pair_of_the_paper() -> None:
    """100 queries at epsilon 2.04 and 1000 at 8.03, with votes that a good ensemble of 250 might cast."""
    agreed, disputed = [[247, 3] + [0] * 8], [[128, 120, 2] + [0] * 7]
    few = np.asarray(agreed * 87 + disputed * 13)
    many = np.concatenate([few, np.asarray(agreed * 701 + disputed * 199)])
    for votes, published in ((few, 2.04), (many, 8.03)):
        ours = lnmax_epsilon(votes, 0.05, 1e-5, teachers=250).unsafe_value
        kinds, repeats = np.unique(votes, axis=0, return_counts=True)
        plain = min(
            (repeats @ [plain_log_moment(row, 0.05, order) for row in kinds.tolist()] - math.log(1e-5)) / order
            for order in range(1, 9)
        )
        assert ours == pytest.approx(plain, rel=1e-9)
        assert ours == pytest.approx(published, rel=0.02)


def test_more_moments_never_cost_more() -> None:
    votes = [[240, 10, 0]] * 100
    eight = lnmax_epsilon(votes, 0.05, 1e-5).unsafe_value
    assert lnmax_epsilon(votes, 0.05, 1e-5, np.arange(1, 65)).unsafe_value < eight / 2


@pytest.mark.parametrize("gamma", [1e-6, 0.05, 50.0, 5000.0])
def test_extreme_votes_stay_finite(gamma: float) -> None:
    votes = [[10**6, 0, 0], [0, 0, 10**6], [500_000, 500_000, 0], [333_334, 333_333, 333_333]]
    moments = laplace_votes_moments(votes, gamma, [1.0, 1e4])
    assert np.isfinite(moments).all()
    assert (moments >= 0).all()
    assert moments[0] == pytest.approx(moments[1])


def test_one_class_and_no_queries_cost_nothing() -> None:
    assert not laplace_votes_moments([[7], [7]], 0.05).any()
    assert laplace_votes_moments(np.zeros((0, 10), dtype=int), 0.05).shape == (0, 8)
    assert lnmax_epsilon([[7]], 0.05, 1e-5).unsafe_value == 0
    assert moments_epsilon(np.zeros(8), np.arange(1, 9), 1e-5) == 0


@pytest.mark.parametrize("gamma", [0.05, 1.0])
def test_the_event_of_a_query_is_pure_and_bounds_the_exact_answers(gamma: float) -> None:
    for neighbours in Neighbours:
        event = lnmax_event(gamma, neighbours)
        same = epsilon(lnmax_event(gamma), 1e-3)
        assert epsilon(event, 1e-3, neighbours=neighbours) == pytest.approx(same, rel=1e-9)
        for row in SMALL_VOTES:
            here, others = exact_answers(row, gamma), [exact_answers(other, gamma) for other in moved_votes(row)]
            for level in (0.0, gamma, 1.5 * gamma):
                exact = max(np.maximum(here - math.exp(level) * there, 0).sum() for there in others)
                assert event_delta(event, level, neighbours=neighbours) >= exact - 1e-9
    assert epsilon(lnmax_event(gamma), 0.0) == pytest.approx(2 * gamma, rel=1e-9)
    hundred = dp_event.SelfComposedDpEvent(lnmax_event(gamma), 100)
    assert epsilon(hundred, 1e-5) <= epsilon(hundred, 1e-5, accountant="basic") == pytest.approx(200 * gamma)


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        ([3, 4], "shape"),
        (np.zeros((2, 0)), "at least one class"),
        ([[3, -1]], "at least 0"),
        ([[0.5, 1.5]], "whole numbers"),
        ([[math.nan, 1]], "whole numbers"),
        ([["a", "b"]], "whole numbers"),
        ([[3, 4], [3, 5]], r"votes\[1\].* adds up to 8 with 7 teachers"),
        ([[0, 0]], "teachers=0"),
    ],
)
def test_bad_votes_are_refused(votes: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        laplace_votes_moments(votes, 0.05)  # type: ignore[arg-type]


def test_votes_must_be_those_of_all_teachers() -> None:
    assert laplace_votes_moments([[3, 4]], 0.05, teachers=7).shape == (1, 8)
    with pytest.raises(InputError, match="250 teachers"):
        laplace_votes_moments([[3, 4]], 0.05, teachers=250)


@pytest.mark.parametrize(
    ("gamma", "orders", "delta"), [(0.0, [1.0], 0.1), (0.05, [0.0], 0.1), (0.05, [], 0.1), (0.05, [1.0], 0)]
)
def test_bad_settings_are_refused(gamma: float, orders: list[float], delta: float) -> None:
    with pytest.raises(InputError):
        lnmax_epsilon([[3, 4]], gamma, delta, orders)
