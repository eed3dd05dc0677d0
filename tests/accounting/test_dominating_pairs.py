"""Profiles of dominating pairs against mpmath, brute force and dp-accounting, in both directions and tails."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_mechanism as reference
from hypothesis import given
from hypothesis import strategies as st

from tacit.accounting import dominating
from tacit.accounting.dominating import DominatingPair

EPSILONS = np.asarray([0.0, 1e-3, 0.1, 0.7, 2.0, 6.0])
REMOVE, ADD, REPLACE = (getattr(reference.AdjacencyType, name) for name in ("REMOVE", "ADD", "REPLACE"))


@pytest.mark.parametrize("sigma", [0.3, 1.0, 7.0, 100.0])
def test_gaussian_keeps_its_relative_precision_in_the_far_tail(sigma: float) -> None:
    epsilons = np.asarray([0.0, 0.1, 1.0, 5.0, 20.0]) / sigma + 0.5 / sigma**2
    with mpmath.workdps(60):
        exact = [
            float(
                mpmath.ncdf(mpmath.mpf(1) / (2 * sigma) - e * mpmath.mpf(sigma))
                - mpmath.exp(e) * mpmath.ncdf(-mpmath.mpf(1) / (2 * sigma) - e * mpmath.mpf(sigma))
            )
            for e in map(mpmath.mpf, map(float, epsilons))
        ]
    np.testing.assert_allclose(dominating.gaussian_profile(epsilons, sigma), exact, rtol=1e-10)


def test_gaussian_with_next_to_no_noise_hides_nothing() -> None:
    # Epsilons of 1e16 and more: a difference of logarithms would have no digit left.
    for sigma in (1e-8, 1e-100):
        below, above = 0.25 / sigma**2, 2.0 / sigma**2
        np.testing.assert_array_equal(dominating.gaussian_profile(np.asarray([0.0, below, above]), sigma), [1, 1, 0])


@pytest.mark.parametrize("q", [1e-4, 0.1, 0.9, 1.0])
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_sampled_noise_equals_dp_accounting(q: float, kind: str) -> None:
    ours, theirs = {
        "gaussian": (dominating.gaussian(0.8), reference.GaussianPrivacyLoss),
        "laplace": (dominating.laplace(0.8), reference.LaplacePrivacyLoss),
    }[kind]
    pair = dominating.poisson_sampled(ours, q)
    for profile, adjacency in ((pair.forward, REMOVE), (pair.backward, ADD)):
        expected = theirs(0.8, sampling_prob=q, adjacency_type=adjacency).get_delta_for_epsilon(EPSILONS)
        np.testing.assert_allclose(profile(EPSILONS), expected, rtol=1e-7, atol=1e-15)


@pytest.mark.parametrize("q", [1e-4, 0.1, 0.9, 1.0])
def test_replaced_gaussian_equals_dp_accounting(q: float) -> None:
    pair = dominating.poisson_sampled_gaussian_replaced(1.3, q)
    expected = reference.GaussianPrivacyLoss(1.3, sampling_prob=q, adjacency_type=REPLACE)
    np.testing.assert_allclose(pair.forward(EPSILONS), expected.get_delta_for_epsilon(EPSILONS), rtol=1e-7, atol=1e-15)


def test_gaussian_mixture_equals_dp_accounting_and_contains_poisson_sampling() -> None:
    shifts, weights = [0.0, 1.0, 2.0], [0.8, 0.15, 0.05]
    pair = dominating.gaussian_mixture(1.1, shifts, weights)
    for profile, adjacency in ((pair.forward, REMOVE), (pair.backward, ADD)):
        expected = reference.MixtureGaussianPrivacyLoss(1.1, shifts, weights, adjacency_type=adjacency)
        np.testing.assert_allclose(profile(EPSILONS), expected.get_delta_for_epsilon(EPSILONS), rtol=1e-5, atol=1e-13)
    sampled = dominating.poisson_sampled(dominating.gaussian(1.1), 0.2)
    special = dominating.gaussian_mixture(1.1, [0.0, 1.0], [0.8, 0.2])
    np.testing.assert_allclose(special.forward(EPSILONS), sampled.forward(EPSILONS), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(special.backward(EPSILONS), sampled.backward(EPSILONS), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_discrete_laplace_equals_a_sum_over_the_integers(k: int) -> None:
    a = 0.35
    x = np.arange(-300, 301)
    p, q = (np.exp(-a * np.abs(x - shift)) * math.tanh(a / 2) for shift in (0, k))
    epsilons = np.asarray([0.0, 0.1, 0.35, 0.5, 0.7, 1.0, 1.7, 3.0])
    expected = [np.maximum(p - math.exp(e) * q, 0).sum() for e in epsilons]
    np.testing.assert_allclose(dominating.discrete_laplace(a, k).forward(epsilons), expected, atol=1e-14)


def test_finite_pair_is_its_definition() -> None:
    pair = dominating.finite([0.7, 0.2, 0.1], [0.1, 0.2, 0.7])
    np.testing.assert_allclose(pair.forward(np.asarray([0.0, math.log(3), 5.0])), [0.6, 0.4, 0.0], atol=1e-15)
    one_sided = dominating.finite([0.9, 0.1], [1.0, 0.0])
    np.testing.assert_allclose(one_sided.forward(np.asarray([0.0, 50.0])), [0.1, 0.1])


def test_mixture_averages_profiles() -> None:
    first, second = dominating.gaussian(1.0), dominating.poisson_sampled(dominating.gaussian(2.0), 0.1)
    mixed = dominating.mixture(first, second, 0.25)
    for ours, one, other in (
        (mixed.forward, first.forward, second.forward),
        (mixed.backward, first.backward, second.backward),
    ):
        np.testing.assert_allclose(ours(EPSILONS), 0.25 * one(EPSILONS) + 0.75 * other(EPSILONS))


def test_directions_of_symmetric_noise_are_known_to_agree() -> None:
    assert dominating.gaussian(1.0).is_symmetric
    pair = dominating.poisson_sampled(dominating.gaussian(1.0), 0.5)
    assert not pair.is_symmetric
    assert pair.reversed().forward is pair.backward


def pairs() -> st.SearchStrategy[DominatingPair]:
    sigma, rate = st.floats(0.2, 50), st.floats(1e-6, 1)
    return st.one_of(
        st.builds(lambda s, q: dominating.poisson_sampled(dominating.gaussian(s), q), sigma, rate),
        st.builds(lambda s, q: dominating.poisson_sampled(dominating.laplace(s), q), sigma, rate),
        st.builds(dominating.poisson_sampled_gaussian_replaced, sigma, rate),
        st.builds(dominating.discrete_laplace, st.floats(0.01, 3), st.integers(1, 6)),
    )


@given(pairs())
def test_profiles_fall_from_one_total_variation_distance(pair: DominatingPair) -> None:
    epsilons = np.linspace(0, 8, 60)
    at_zero = pair.forward(np.zeros(1))[0]
    assert at_zero == pytest.approx(pair.backward(np.zeros(1))[0], rel=1e-6, abs=1e-15)
    for profile in (pair.forward, pair.backward):
        deltas = profile(epsilons)
        assert np.all((deltas >= 0) & (deltas <= 1))
        assert np.all(np.diff(deltas) <= 1e-12 * at_zero + 1e-300)
