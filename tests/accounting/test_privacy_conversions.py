"""Conversions between notions of privacy, against closed forms and definitions."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from hypothesis import given
from hypothesis import strategies as st

from tacit import accounting
from tacit.core import Budget, InputError

SIGMAS = st.floats(math.log(0.1), math.log(200)).map(math.exp)
DELTAS = st.floats(-14, -0.3).map(lambda x: 10**x)


@given(SIGMAS, DELTAS)
def test_gaussian_epsilon_equals_dp_accounting_and_is_safe(sigma: float, delta: float) -> None:
    found = accounting.gaussian_epsilon(sigma, delta)
    assert found == pytest.approx(gaussian_mechanism.get_epsilon_gaussian(sigma, delta), rel=1e-9, abs=1e-9)
    assert accounting.gaussian_delta(sigma, found) <= delta


@pytest.mark.parametrize("sigma", [1e-3, 1e-6, 1e-9, 1e-50, 1e-150])
def test_gaussian_epsilon_of_next_to_no_noise_is_huge_and_safe(sigma: float) -> None:
    """Far out the tail is lost in rounding; epsilon is then that of the tail bound."""
    found = accounting.gaussian_epsilon(sigma, 1e-5)
    assert 0.5 / sigma**2 <= found <= 0.5 / sigma**2 + 5 / sigma


@given(st.floats(0.01, 20), DELTAS)
def test_gaussian_noise_is_the_least_that_suffices(epsilon: float, delta: float) -> None:
    noise = accounting.gaussian_noise(epsilon, delta)
    assert accounting.gaussian_delta(noise, epsilon) <= delta
    assert accounting.gaussian_delta(noise * (1 - 1e-6), epsilon) > delta


def test_gaussian_delta_equals_mpmath() -> None:
    with mpmath.workdps(40):
        s, e = mpmath.mpf(2), mpmath.mpf(3)
        exact = mpmath.ncdf(1 / (2 * s) - e * s) - mpmath.exp(e) * mpmath.ncdf(-1 / (2 * s) - e * s)
        assert accounting.gaussian_delta(2.0, 3.0) == pytest.approx(float(exact), rel=1e-12)
    assert accounting.gaussian_delta(0.0, 3.0) == 1
    assert accounting.gaussian_epsilon(0.0, 1e-5) == math.inf


@given(st.floats(0.01, 10), DELTAS)
def test_gdp_is_a_gaussian_with_inverse_noise(mu: float, delta: float) -> None:
    epsilon = accounting.gdp_to_epsilon(mu, delta)
    assert epsilon == accounting.gaussian_epsilon(1 / mu, delta)
    assert accounting.gdp_to_delta(mu, epsilon) <= delta
    if epsilon > 1e-3:
        assert accounting.gdp_from_budget(Budget(epsilon, delta)) == pytest.approx(mu, rel=1e-6)
    assert accounting.gdp_to_epsilon(0.0, delta) == accounting.gdp_to_delta(0.0, 1.0) == 0


def test_pure_to_zcdp_to_rdp_to_approximate() -> None:
    rho = accounting.pure_to_zcdp(0.5)
    assert rho == 0.125
    assert accounting.zcdp_to_rdp(rho, 8.0) == 1.0
    # Randomised response is the worst pure mechanism: its exact divergence lies below both bounds.
    for order in (1.5, 2.0, 30.0):
        p = math.exp(0.5) / (1 + math.exp(0.5))
        exact = math.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
        assert accounting.pure_to_rdp(0.5, order) == pytest.approx(exact, rel=1e-12)
        assert exact <= min(0.5, accounting.zcdp_to_rdp(rho, order))
    assert accounting.pure_to_rdp(0.0, 3.0) < 1e-15


@given(st.floats(1e-4, 5), DELTAS)
def test_zcdp_is_the_best_order_of_renyi(rho: float, delta: float) -> None:
    found = accounting.zcdp_to_epsilon(rho, delta)
    orders = 1 + np.geomspace(1e-3, 1e5, 3000)
    scan = min(accounting.rdp_to_epsilon(float(a), rho * float(a), delta) for a in orders)
    assert found <= scan * (1 + 1e-6) + 1e-9
    assert found >= scan * (1 - 1e-3) - 1e-9
    # A Gaussian with the same rho is the tightest case of zCDP that there is.
    assert found >= accounting.gaussian_epsilon(math.sqrt(0.5 / rho), delta) * (1 - 1e-9)


@given(st.floats(1e-3, 5), st.floats(0.1, 20))
def test_zcdp_delta_inverts_its_epsilon(rho: float, epsilon: float) -> None:
    delta = accounting.zcdp_to_delta(rho, epsilon)
    assert accounting.gaussian_delta(math.sqrt(0.5 / rho), epsilon) <= delta * (1 + 1e-9)
    if 1e-250 < delta < 0.5:
        assert accounting.zcdp_to_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-4)


def test_rdp_conversion_is_proposition_12() -> None:
    epsilon = accounting.rdp_to_epsilon(10.0, 0.5, 1e-5)
    assert epsilon == pytest.approx(0.5 + math.log(0.9) - math.log(1e-4) / 9, rel=1e-12)
    assert accounting.rdp_to_delta(10.0, 0.5, epsilon) == pytest.approx(1e-5, rel=1e-12)
    # It is tighter than Mironov's first conversion, D + log(1/delta) / (order - 1).
    assert epsilon < 0.5 + math.log(1e5) / 9
    assert accounting.rdp_to_epsilon(2.0, 0.0, 0.9) == 0


def test_group_privacy_is_a_geometric_sum() -> None:
    group = accounting.group_privacy(Budget(0.5, 1e-6), 3)
    assert group.epsilon == 1.5
    assert group.delta == pytest.approx(1e-6 * (1 + math.exp(0.5) + math.exp(1.0)), rel=1e-12)
    assert accounting.group_privacy(Budget(0.5, 1e-6), 1) == Budget(0.5, 1e-6)
    assert accounting.group_privacy(Budget(0.0, 1e-6), 4).delta == pytest.approx(4e-6)
    assert accounting.group_privacy(Budget(2.0, 0.0), 1000) == Budget(2000.0, 0.0)


@given(st.floats(0.01, 2), st.integers(1, 5), st.integers(1, 5))
def test_groups_of_groups_are_groups(epsilon: float, first: int, second: int) -> None:
    budget = Budget(epsilon, 1e-30)
    nested = accounting.group_privacy(accounting.group_privacy(budget, first), second)
    whole = accounting.group_privacy(budget, first * second)
    assert nested.epsilon == pytest.approx(whole.epsilon)
    assert nested.delta == pytest.approx(whole.delta, rel=1e-9)


def test_bad_values_say_what_is_wrong() -> None:
    with pytest.raises(InputError, match=r"size=40: .*no guarantee remains"):
        accounting.group_privacy(Budget(1.0, 1e-5), 40)
    with pytest.raises(InputError, match=r"size=2000: .*no guarantee remains"):
        accounting.group_privacy(Budget(1.0, 1e-5), 2000)
    with pytest.raises(InputError, match="size=0: must be at least 1"):
        accounting.group_privacy(Budget(1.0, 1e-5), 0)
    with pytest.raises(InputError, match="order=1: must be above 1"):
        accounting.rdp_to_epsilon(1, 0.1, 1e-5)
    with pytest.raises(InputError, match=r"delta=0\.0: must lie strictly between 0 and 1"):
        accounting.gaussian_epsilon(1.0, 0.0)
    with pytest.raises(InputError, match="rho=-1: must be a finite number of at least 0"):
        accounting.zcdp_to_epsilon(-1, 1e-5)
