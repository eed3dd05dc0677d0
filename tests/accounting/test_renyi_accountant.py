"""Rényi DP against dp-accounting, order by order."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.rdp import RdpAccountant
from scipy import special

from tacit.accounting import RenyiAccountant, dpsgd_event, gaussian_epsilon
from tacit.accounting.renyi import ORDERS
from tacit.core import Neighbours, UnsupportedError

ACCOUNTANT = RenyiAccountant()
GAUSSIAN = dp_event.GaussianDpEvent(2.0)


def reference(event: dp_event.DpEvent, relation: NeighboringRelation, orders: np.ndarray) -> np.ndarray:
    return RdpAccountant(orders, relation).compose(event).rdp


def mpmath_divergence(order: float, q: float, sigma: float) -> float:
    with mpmath.workdps(30):

        def integrand(z: mpmath.mpf) -> mpmath.mpf:
            ratio = 1 - q + q * mpmath.exp((2 * z - 1) / (2 * mpmath.mpf(sigma) ** 2))
            return mpmath.npdf(z, 0, sigma) * ratio**order

        moment = mpmath.quad(integrand, mpmath.linspace(-12 * sigma, order + 12 * sigma, 30))
        return float(mpmath.log(moment) / (order - 1))


@pytest.mark.parametrize(("q", "sigma"), [(1e-4, 0.5), (0.01, 4.0), (0.2, 1.0), (0.9, 20.0), (1.0, 3.0)])
def test_sampled_gaussian_equals_dp_accounting(q: float, sigma: float) -> None:
    event = dpsgd_event(q, sigma, 7)
    ours = ACCOUNTANT.divergences(event, Neighbours.ADD_REMOVE)
    whole = np.flatnonzero((np.round(ORDERS) == ORDERS) & (ORDERS < 3000))[::6]
    expected = reference(event, NeighboringRelation.ADD_OR_REMOVE_ONE, ORDERS[whole])
    np.testing.assert_allclose(ours[whole], expected, rtol=1e-9, atol=1e-13)


def test_sampled_gaussian_at_fractional_orders_is_exact() -> None:
    # dp-accounting bounds these from above, by up to a tenth; so quadrature in 30 digits is the oracle.
    q, sigma = 0.01, 4.0
    divergences = ACCOUNTANT.divergences(dpsgd_event(q, sigma, 1), Neighbours.ADD_REMOVE)
    for i in (0, 20, 39, 60, 180):
        assert divergences[i] == pytest.approx(mpmath_divergence(ORDERS[i], q, sigma), rel=1e-8)
        upper = reference(dpsgd_event(q, sigma, 1), NeighboringRelation.ADD_OR_REMOVE_ONE, ORDERS[i : i + 1])[0]
        assert divergences[i] <= upper * (1 + 1e-9)


def test_pitfall_37_orders_are_fine_and_not_capped_at_63() -> None:
    assert np.all(np.diff(ORDERS) > 0)
    assert ORDERS[0] <= 1.05
    assert ORDERS[-1] >= 10_000
    assert np.max(np.diff(ORDERS) / (ORDERS[:-1] - 1)) < 0.11
    # With very little spent the best order lies far above 63: a capped grid would say several times as much.
    event = dpsgd_event(1e-4, 4.0, 100)
    capped = RdpAccountant(np.arange(2, 64)).compose(event).get_epsilon(1e-5)
    assert ACCOUNTANT.epsilon(event, 1e-5, Neighbours.ADD_REMOVE) < capped / 4


def test_plain_gaussian_stays_above_the_exact_value() -> None:
    for sigma in (0.3, 1.0, 10.0, 100.0):
        bound = ACCOUNTANT.epsilon(dp_event.GaussianDpEvent(sigma), 1e-6, Neighbours.ADD_REMOVE)
        exact = gaussian_epsilon(sigma, 1e-6)
        assert exact <= bound <= 1.2 * exact


@pytest.mark.parametrize("noise", [0.8, 4.0])
def test_sampling_without_replacement_lies_just_above_dp_accounting(noise: float) -> None:
    event = dp_event.SampledWithoutReplacementDpEvent(1000, 50, dp_event.GaussianDpEvent(noise))
    halved = dp_event.SampledWithoutReplacementDpEvent(1000, 50, dp_event.GaussianDpEvent(noise / 2))
    chosen = np.flatnonzero((ORDERS > 1.3) & (ORDERS < 40))[::9]
    expected = reference(halved, NeighboringRelation.REPLACE_ONE, ORDERS[chosen])
    ours = ACCOUNTANT.divergences(event, Neighbours.REPLACE_ONE)[chosen]
    assert np.all(ours >= expected * (1 - 1e-12))
    np.testing.assert_allclose(ours[ORDERS[chosen] < 16], expected[ORDERS[chosen] < 16], rtol=1e-9)
    steps = dp_event.SelfComposedDpEvent
    bound = ACCOUNTANT.epsilon(steps(event, 100), 1e-5, Neighbours.REPLACE_ONE)
    theirs = RdpAccountant(None, NeighboringRelation.REPLACE_ONE).compose(steps(halved, 100)).get_epsilon(1e-5)
    assert theirs * 0.98 <= bound <= theirs * 1.01


def test_replacing_a_record_doubles_what_moves() -> None:
    for kind in (dp_event.GaussianDpEvent, dp_event.LaplaceDpEvent):
        replaced = ACCOUNTANT.divergences(kind(3.0), Neighbours.REPLACE_ONE)
        np.testing.assert_array_equal(replaced, ACCOUNTANT.divergences(kind(1.5), Neighbours.ADD_REMOVE))


def test_discrete_laplace_lies_above_its_own_divergence() -> None:
    # The exact divergence of two shifted discrete Laplace distributions, by summation.
    a, k = 0.4, 3
    x = np.arange(-400, 401)
    p, q = (np.exp(-a * np.abs(x - shift)) * math.tanh(a / 2) for shift in (0, k))
    bound = ACCOUNTANT.divergences(dp_event.DiscreteLaplaceDpEvent(a, k), Neighbours.ADD_REMOVE)
    for i in (0, 30, 100, 230, ORDERS.size - 1):
        log_terms = ORDERS[i] * np.log(p) + (1 - ORDERS[i]) * np.log(q)
        exact = special.logsumexp(log_terms) / (ORDERS[i] - 1)
        assert exact * (1 - 1e-9) <= bound[i] <= a * k * (1 + 1e-12)


def test_zcdp_and_tree_aggregation_are_dp_accountings() -> None:
    zcdp = ACCOUNTANT.divergences(dp_event.ZCDpEvent(0.1), Neighbours.ADD_REMOVE)
    np.testing.assert_allclose(zcdp, 0.1 * ORDERS)
    tree = dp_event.SingleEpochTreeAggregationDpEvent(2.0, 8)
    np.testing.assert_allclose(ACCOUNTANT.divergences(tree, Neighbours.ZERO_OUT), ORDERS * 4 / (2 * 4))
    assert not ACCOUNTANT.supports(tree, Neighbours.ADD_REMOVE)


def test_delta_inverts_epsilon() -> None:
    event = dpsgd_event(0.01, 1.0, 1000)
    epsilon = ACCOUNTANT.epsilon(event, 1e-5, Neighbours.ADD_REMOVE)
    assert ACCOUNTANT.delta(event, epsilon, Neighbours.ADD_REMOVE) == pytest.approx(1e-5, rel=1e-6)
    assert ACCOUNTANT.delta(dp_event.NonPrivateDpEvent(), 1.0, Neighbours.ADD_REMOVE) == 1.0


@pytest.mark.parametrize(
    ("event", "neighbours", "remedy"),
    [
        (dpsgd_event(0.1, 1.0, 5), Neighbours.REPLACE_ONE, "Use 'pld'"),
        (dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]), Neighbours.ADD_REMOVE, "Use 'pld'"),
        (dp_event.SampledWithoutReplacementDpEvent(10, 2, GAUSSIAN), Neighbours.ADD_REMOVE, "No accountant"),
        (dp_event.SampledWithReplacementDpEvent(10, 2, GAUSSIAN), Neighbours.REPLACE_ONE, "No accountant"),
        (dp_event.UnsupportedDpEvent(), Neighbours.ADD_REMOVE, "No accountant"),
    ],
)
def test_refusals_name_the_remedy(event: dp_event.DpEvent, neighbours: Neighbours, remedy: str) -> None:
    assert not ACCOUNTANT.supports(event, neighbours)
    with pytest.raises(UnsupportedError, match=remedy):
        ACCOUNTANT.epsilon(event, 1e-5, neighbours)
