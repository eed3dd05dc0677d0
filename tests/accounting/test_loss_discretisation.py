"""Connecting the dots: a distribution whose profile meets the true one at the grid and lies above it elsewhere."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accounting import dominating
from tacit.accounting.discretisation import (
    LossDistribution,
    connect_the_dots,
    loss_range,
    on_relative_grid,
    on_uniform_grid,
)

PAIR = dominating.poisson_sampled(dominating.gaussian(0.9), 0.2)


def profile(loss: LossDistribution, epsilon: float) -> float:
    above = loss.losses > epsilon
    return loss.infinity_mass + float(loss.masses[above] @ -np.expm1(epsilon - loss.losses[above]))


@pytest.mark.parametrize("pair", [PAIR, PAIR.reversed(), dominating.laplace(0.7), dominating.discrete_laplace(0.3, 3)])
@pytest.mark.parametrize("spacing", [0.3, 0.05, 1e-3])
def test_meets_the_profile_at_the_grid_and_lies_above_between(pair: dominating.DominatingPair, spacing: float) -> None:
    _, loss = on_uniform_grid(pair, spacing, loss_range(pair, 1e-12, 1e-14))
    assert loss.masses.sum() + loss.infinity_mass == pytest.approx(1.0, abs=1e-9)
    points = loss.losses[(loss.losses >= 0) & (loss.losses < 3)]
    for x in points[:: max(1, points.size // 8)]:
        true_here = float(pair.forward(np.asarray([x]))[0])
        assert profile(loss, x) == pytest.approx(true_here, rel=1e-8, abs=1e-13)
        between = x + 0.4 * spacing
        assert profile(loss, between) >= float(pair.forward(np.asarray([between]))[0]) * (1 - 1e-9) - 1e-15


def test_error_of_the_cumulant_function_is_of_second_order_and_as_predicted() -> None:
    order, bounds = 6.0, loss_range(PAIR, 1e-30, 1e-18)
    fine = on_uniform_grid(PAIR, 1e-4, bounds)[1].log_moments(np.asarray([order]))[0]
    for spacing in (0.04, 0.02, 0.01):
        excess = on_uniform_grid(PAIR, spacing, bounds)[1].log_moments(np.asarray([order]))[0] - fine
        assert excess == pytest.approx(order * (order + 1) * spacing**2 / 12, rel=0.05)


def test_relative_grid_has_the_moments_of_a_fine_uniform_one() -> None:
    orders = np.asarray([0.5, 3.0, 20.0])
    relative = on_relative_grid(PAIR, 1e-20, 1e-16)
    _, uniform = on_uniform_grid(PAIR, 2e-4, loss_range(PAIR, 1e-20, 1e-16))
    np.testing.assert_allclose(relative.log_moments(orders), uniform.log_moments(orders), rtol=1e-2)
    assert np.all(relative.log_moments(orders) >= uniform.log_moments(orders) * (1 - 1e-6))
    assert relative.losses.size < 2000


def test_both_tails_keep_their_relative_precision() -> None:
    # Far out, masses are far below the rounding of 1; a plain second difference would only return noise.
    loss = connect_the_dots(dominating.gaussian(1.0), np.arange(-1200, 1201) * 0.01)
    losses = loss.losses[[100, 300, -300, -100]]
    density = np.exp(-((losses - 0.5) ** 2) / 2) / math.sqrt(
        2 * math.pi
    )  # the loss of a Gaussian is N(1/2, 1) at s = 1
    np.testing.assert_allclose(loss.masses[[100, 300, -300, -100]], density * 0.01, rtol=0.01)


def test_range_holds_all_but_the_tails() -> None:
    lower, upper = loss_range(PAIR, 1e-9, 1e-9)
    assert float(PAIR.forward(np.asarray([upper]))[0]) <= 1e-9
    assert lower <= math.log1p(-0.2) * 0.99
    assert upper < 30


@given(st.floats(0.3, 20), st.floats(1e-5, 1), st.floats(0.5, 40))
def test_lifting_small_losses_costs_no_more_than_its_share(sigma: float, rate: float, order: float) -> None:
    loss = on_relative_grid(dominating.poisson_sampled(dominating.gaussian(sigma), rate).reversed(), 1e-15, 1e-15)
    lowest = loss.negligible_below(order, 1e-10)
    assert loss.losses[0] <= lowest <= 0
    lifted = LossDistribution(np.maximum(loss.losses, lowest), loss.masses, loss.infinity_mass)
    before, after = (float(form.log_moments(np.asarray([order]))[0]) for form in (loss, lifted))
    assert after <= before + 1.1e-10
