"""Certified curves against closed forms, exact double integrals and dp-accounting's own bounds from both sides."""

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event, pld
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import delta, dominating, dpsgd_event, epsilon, gaussian_delta, gaussian_epsilon
from tacit.accounting.dominating import DominatingPair
from tacit.accounting.privacy_curve import PrivacyCurve
from tacit.core import Neighbours

TOLERANCE = 4e-4


@pytest.mark.parametrize("steps", [2, 17, 1000, 10**6])
@pytest.mark.parametrize("target", [1e-12, 1e-5, 0.1])
@pytest.mark.parametrize("spread", [0.02, 0.5, 5.0, 40.0])
def test_composed_gaussians_equal_the_closed_form(steps: int, target: float, spread: float) -> None:
    # Forced through the transform, T Gaussians must come out as the one with noise s / sqrt(T), never below it.
    curve = PrivacyCurve((dominating.gaussian(math.sqrt(steps) / spread),), (steps,))
    exact = gaussian_epsilon(1 / spread, target)
    certified = curve.epsilon(target)
    assert exact * (1 - 1e-9) <= certified <= exact * (1 + TOLERANCE) + 1e-3 * spread * (exact == 0)
    if exact > 0:
        true_delta = gaussian_delta(1 / spread, exact)
        assert true_delta * (1 - 1e-7) <= curve.delta(exact) <= true_delta * 1.05


def test_mixed_pairs_equal_the_closed_form() -> None:
    noises, counts = (3.0, 5.0, 11.0), (4, 10, 100)
    curve = PrivacyCurve(tuple(dominating.gaussian(noise) for noise in noises), counts)
    total = sum(count / noise**2 for noise, count in zip(noises, counts, strict=True))
    exact = gaussian_epsilon(total**-0.5, 1e-6)
    assert exact <= curve.epsilon(1e-6) <= exact * (1 + TOLERANCE)


def extended(profile: Callable[[np.ndarray], np.ndarray], reverse: Callable[[np.ndarray], np.ndarray]) -> Callable:
    def at(epsilons: np.ndarray) -> np.ndarray:
        size = np.abs(epsilons)
        return np.where(epsilons >= 0, profile(size), 1 - np.exp(-size) + np.exp(-size) * reverse(size))

    return at


def two_step_delta(pair: DominatingPair, q: float, sigma: float, at: float) -> float:
    """Delta of two steps, exactly: the profile of one, averaged over the loss of the other, in both directions."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    edges = np.linspace(-12 * sigma, 1 + 12 * sigma, 600)
    half = np.diff(edges)[:, None] / 2
    x, w = (edges[:-1, None] + half * (nodes + 1)).ravel(), (half * weights).ravel()
    base, shifted = (np.exp(-((x - m) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi)) for m in (0, 1))
    loss = np.log1p(q * np.expm1((2 * x - 1) / (2 * sigma**2)))
    removed = np.sum(w * ((1 - q) * base + q * shifted) * extended(pair.forward, pair.backward)(at - loss))
    added = np.sum(w * base * extended(pair.backward, pair.forward)(at + loss))
    return max(float(removed), float(added))


@pytest.mark.parametrize(
    ("q", "sigma", "target"),
    [(0.01, 2.0, 1e-5), (0.3, 0.3, 1e-12), (0.3, 0.3, 0.1), (1e-4, 0.3, 1e-5), (1e-4, 0.7, 1e-12), (1e-6, 0.7, 1e-12)],
)
def test_two_steps_equal_a_double_integral(q: float, sigma: float, target: float) -> None:
    pair = dominating.poisson_sampled(dominating.gaussian(sigma), q)
    certified = epsilon(dpsgd_event(q, sigma, 2), target)
    assert two_step_delta(pair, q, sigma, certified) <= target * (1 + 1e-6)
    assert two_step_delta(pair, q, sigma, certified * (1 - 1e-3)) > target


def test_one_step_is_exact() -> None:
    q, sigma = 0.1, 0.8
    pair = dominating.poisson_sampled(dominating.gaussian(sigma), q)
    for target in (1e-12, 1e-5, 0.01):
        found = epsilon(dpsgd_event(q, sigma, 1), target)
        assert float(pair.forward(np.asarray([found]))[0]) == pytest.approx(target, rel=1e-10)
        assert delta(dpsgd_event(q, sigma, 1), found) == pytest.approx(target, rel=1e-10)


def reference(event: dp_event.DpEvent, target: float, relation: NeighboringRelation, interval: float) -> float:
    accountant = pld.PLDAccountant(relation, value_discretization_interval=interval)
    return float(accountant.compose(event).get_epsilon(target))


STEP = dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.5))
TRUNCATED = dp_event.TruncatedSubsampledGaussianDpEvent(200, 0.05, 14, 2.0)
MANY = dp_event.SelfComposedDpEvent


@pytest.mark.parametrize(
    ("event", "neighbours"),
    [
        (MANY(STEP, 500), Neighbours.ADD_REMOVE),
        (MANY(STEP, 500), Neighbours.REPLACE_ONE),
        (MANY(STEP, 500), Neighbours.ZERO_OUT),
        (MANY(dp_event.GaussianDpEvent(20.0), 50), Neighbours.REPLACE_ONE),
        (MANY(dp_event.LaplaceDpEvent(9.0), 20), Neighbours.ADD_REMOVE),
        (MANY(dp_event.PoissonSampledDpEvent(0.1, dp_event.LaplaceDpEvent(2.0)), 20), Neighbours.ADD_REMOVE),
        (MANY(dp_event.DiscreteLaplaceDpEvent(0.1, 2), 20), Neighbours.ADD_REMOVE),
        (MANY(TRUNCATED, 30), Neighbours.ADD_REMOVE),
        (MANY(TRUNCATED, 30), Neighbours.REPLACE_ONE),
        (MANY(TRUNCATED, 30), Neighbours.ZERO_OUT),
        (dp_event.ComposedDpEvent([dp_event.RandomizedResponseDpEvent(0.8, 4)] * 3), Neighbours.REPLACE_ONE),
        (dp_event.ComposedDpEvent([dp_event.RandomizedResponseDpEvent(0.8, 4)] * 3), Neighbours.ZERO_OUT),
        # Here the record that is added, not the one that is removed, costs more.
        (dp_event.ComposedDpEvent([dp_event.RandomizedResponseDpEvent(0.1, 2)] * 3), Neighbours.ZERO_OUT),
        (
            dp_event.ComposedDpEvent([MANY(STEP, 100), dp_event.GaussianDpEvent(9.0), dp_event.LaplaceDpEvent(20.0)]),
            Neighbours.ADD_REMOVE,
        ),
    ],
)
def test_every_event_equals_dp_accounting(event: dp_event.DpEvent, neighbours: Neighbours) -> None:
    relation = {
        Neighbours.ADD_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
        Neighbours.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
        Neighbours.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
    }[neighbours]
    assert epsilon(event, 1e-5, neighbours=neighbours) == pytest.approx(
        reference(event, 1e-5, relation, 2e-4), rel=1e-3
    )


def test_mixture_of_gaussians_with_two_shifts_is_poisson_sampling() -> None:
    mixture = MANY(dp_event.MixtureOfGaussiansDpEvent(1.5, [0.0, 1.0], [0.98, 0.02]), 20)
    assert epsilon(mixture, 1e-5) == pytest.approx(epsilon(MANY(STEP, 20), 1e-5), rel=1e-4)


def test_repeated_randomised_response_costs_more_each_time() -> None:
    values = [
        epsilon(MANY(dp_event.RandomizedResponseDpEvent(0.5, 2), count), 1e-3, neighbours=Neighbours.REPLACE_ONE)
        for count in (1, 2, 5)
    ]
    assert values[0] == pytest.approx(math.log(3), rel=5e-3)
    assert values[0] * 1.5 < values[1] < values[2] <= 5 * math.log(3)


@pytest.mark.parametrize(("q", "sigma", "steps"), [(0.01, 1.0, 200), (0.2, 3.0, 40)])
def test_certified_between_an_optimistic_bound_and_one_in_a_thousand_above_it(
    q: float, sigma: float, steps: int
) -> None:
    optimistic = pld.privacy_loss_distribution.from_gaussian_mechanism(
        sigma,
        pessimistic_estimate=False,
        value_discretization_interval=8e-5,
        sampling_prob=q,
        use_connect_dots=False,
    )
    lower = optimistic.self_compose(steps).get_epsilon_for_delta(1e-5)
    upper = epsilon(dpsgd_event(q, sigma, steps), 1e-5)
    assert lower <= upper <= lower * 1.001 + steps * 8e-5


def test_small_deltas_are_resolved_where_a_plain_transform_only_has_noise() -> None:
    event = dpsgd_event(0.01, 4.0, 100_000)
    deltas = 10.0 ** -np.arange(3, 41, 6)
    values = [epsilon(event, float(target)) for target in deltas]
    assert np.all(np.diff(values) > 0)
    for target, value in zip(deltas, values, strict=True):
        assert delta(event, value) == pytest.approx(target, rel=0.05)


@given(
    st.floats(-6, 0).map(lambda x: 10**x),
    st.floats(math.log(0.3), math.log(100)).map(math.exp),
    st.floats(0, 5).map(lambda x: round(10**x)),
    st.floats(-12, -1).map(lambda x: 10**x),
)
@settings(max_examples=60)
def test_pld_never_exceeds_renyi_nor_falls_below_a_finer_look(
    q: float, sigma: float, steps: int, target: float
) -> None:
    event = dpsgd_event(q, sigma, steps)
    certified = epsilon(event, target)
    assert math.isfinite(certified)
    assert 0 <= certified <= epsilon(event, target, accountant="rdp") * (1 + 1e-3) + 1e-9
    assert delta(event, certified) <= target * 1.05


def test_pitfall_37_a_grid_of_extremes_is_finite_ordered_and_fast() -> None:
    slowest = 0.0
    for q in (1e-6, 1e-3, 0.3, 1.0):
        for sigma in (0.3, 1.0, 10.0, 100.0):
            for steps in (1, 100, 10**6):
                for target in (1e-12, 1e-5, 0.1):
                    event = dpsgd_event(q, sigma, steps)
                    start = time.process_time()
                    certified = epsilon(event, target)
                    slowest = max(slowest, time.process_time() - start)
                    assert math.isfinite(certified), (q, sigma, steps, target)
                    assert certified <= epsilon(event, target, accountant="rdp") * (1 + 1e-3) + 1e-9
    assert slowest < 3


def test_pitfall_37_the_central_limit_estimate_lies_below_and_says_so() -> None:
    event = dpsgd_event(0.01, 0.6, 200)
    assert epsilon(event, 1e-5, accountant="gdp") < 0.9 * epsilon(event, 1e-5)
