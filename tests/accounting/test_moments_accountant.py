"""The moments accountant against the binomial closed form and against mpmath's quadrature."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event

from tacit.accounting import MomentsAccountant, dpsgd_event
from tacit.accounting.gaussian_moments import log_binomial_moment, log_ratio_moments
from tacit.core import InputError, Neighbours, UnsupportedError

ADD_REMOVE = Neighbours.ADD_REMOVE


def mpmath_log_moment(power: int, q: float, sigma: float) -> float:
    """log E_{z ~ N(0, s^2)} (mu(z) / mu0(z))^power by adaptive quadrature in 30 digits, as its excess over 1."""
    with mpmath.workdps(30):
        q_, s = mpmath.mpf(q), mpmath.mpf(sigma)

        def integrand(z: mpmath.mpf) -> mpmath.mpf:
            ratio = 1 - q_ + q_ * mpmath.exp((2 * z - 1) / (2 * s**2))
            return mpmath.npdf(z, 0, s) * (ratio**power - 1)

        low, high = min(0, power) - 12 * sigma, max(0, power) + 12 * sigma
        return float(mpmath.log1p(mpmath.quad(integrand, mpmath.linspace(low, high, 16))))


@pytest.mark.parametrize("q", [1e-6, 0.01, 0.3, 0.999])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0, 100.0])
def test_quadrature_equals_the_binomial_form(q: float, sigma: float) -> None:
    powers = np.arange(2.0, 34.0)
    closed = [log_binomial_moment(int(power), q, sigma) for power in powers]
    np.testing.assert_allclose(log_ratio_moments(powers, q, sigma), closed, rtol=1e-9)


@pytest.mark.parametrize(("q", "sigma"), [(0.01, 4.0), (0.5, 0.7)])
@pytest.mark.parametrize("power", [-32, -1, 2, 9])
def test_quadrature_equals_mpmath_in_both_directions(q: float, sigma: float, power: int) -> None:
    ours = log_ratio_moments(np.asarray([float(power)]), q, sigma)[0]
    assert ours == pytest.approx(mpmath_log_moment(power, q, sigma), rel=1e-9)


@pytest.mark.parametrize("power", [-3, 2, 5])
def test_rare_samples_are_not_lost_in_rounding(power: int) -> None:
    # The moment exceeds 1 by about the square of the rate, here 1e-17: a sum over 1e9 steps must not find nothing.
    exact = mpmath_log_moment(power, 1e-9, 0.5)
    assert 0 < exact < 1e-14
    assert log_ratio_moments(np.asarray([float(power)]), 1e-9, 0.5)[0] == pytest.approx(exact, rel=1e-6)
    if power > 0:
        assert log_binomial_moment(power, 1e-9, 0.5) == pytest.approx(exact, rel=1e-12)


def test_full_sampling_is_the_gaussian_mechanism() -> None:
    powers = np.arange(1.0, 33.0)
    expected = powers * (powers + 1) / (2 * 3.0**2)
    np.testing.assert_allclose(log_ratio_moments(powers + 1, 1.0, 3.0), expected, rtol=1e-12)
    np.testing.assert_allclose(log_ratio_moments(-powers, 1.0, 3.0), expected, rtol=1e-12)


def test_tail_bound_is_the_papers() -> None:
    accountant = MomentsAccountant(max_moment=3)
    moments = np.asarray([max(mpmath_log_moment(k + 1, 0.1, 2.0), mpmath_log_moment(-k, 0.1, 2.0)) for k in (1, 2, 3)])
    expected = np.min((50 * moments + math.log(1e5)) / np.asarray([1, 2, 3]))
    event = dpsgd_event(0.1, 2.0, 50)
    assert accountant.epsilon(event, 1e-5, ADD_REMOVE) == pytest.approx(expected, rel=1e-10)
    assert accountant.delta(event, float(expected), ADD_REMOVE) == pytest.approx(1e-5, rel=1e-9)


def test_more_moments_never_hurt_and_help_small_budgets() -> None:
    event = dpsgd_event(0.001, 4.0, 1000)
    few, many = (MomentsAccountant(max_moment=k).epsilon(event, 1e-5, ADD_REMOVE) for k in (32, 256))
    assert many < 0.5 * few


def test_mixed_steps_add_up() -> None:
    first, second = dpsgd_event(0.01, 1.0, 10), dpsgd_event(0.02, 2.0, 20)
    accountant = MomentsAccountant(max_moment=1)
    total = accountant.epsilon(dp_event.ComposedDpEvent([first, second]), 0.5, ADD_REMOVE)
    parts = [accountant.epsilon(part, 0.5, ADD_REMOVE) - math.log(2) for part in (first, second)]
    assert total == pytest.approx(sum(parts) + math.log(2), rel=1e-12)


@pytest.mark.parametrize(
    ("event", "neighbours"),
    [
        (dp_event.LaplaceDpEvent(1.0), ADD_REMOVE),
        (dp_event.PoissonSampledDpEvent(0.1, dp_event.LaplaceDpEvent(1.0)), ADD_REMOVE),
        (dpsgd_event(0.01, 1.0, 10), Neighbours.REPLACE_ONE),
        (dpsgd_event(0.01, 1.0, 10), Neighbours.ZERO_OUT),
    ],
)
def test_refuses_what_the_paper_does_not_cover(event: dp_event.DpEvent, neighbours: Neighbours) -> None:
    accountant = MomentsAccountant()
    assert not accountant.supports(event, neighbours)
    with pytest.raises(UnsupportedError, match=r"accountant='moments'.*[Uu]se '"):
        accountant.epsilon(event, 1e-5, neighbours)


def test_bad_max_moment() -> None:
    with pytest.raises(InputError, match="max_moment=0: must be at least 1"):
        MomentsAccountant(max_moment=0)
