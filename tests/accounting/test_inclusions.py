"""The bound by inclusions: never below the truth, and close to it where noise is tiny."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from tacit.accounting import LossDistributionAccountant, dpsgd_event, tanh_filter_statements
from tacit.accounting.inclusions import Inclusions
from tacit.core.privacy import Neighbours

PLD = LossDistributionAccountant()


@given(
    steps=st.integers(1, 50),
    rate=st.floats(0.01, 1.0),
    precision=st.floats(1e-2, 1e4),
    always=st.floats(0, 100),
    delta=st.floats(1e-9, 0.5),
)
def test_epsilon_and_delta_belong_together(steps, rate, precision, always, delta):
    bound = Inclusions(steps, rate, precision, always)
    epsilon = bound.epsilon(delta)
    assert bound.delta(epsilon) <= delta * (1 + 1e-8)
    assert epsilon < 1e-6 or bound.delta(epsilon * (1 - 1e-6)) > delta * (1 - 1e-3)


@pytest.mark.parametrize(("noise", "rate", "steps"), [(0.7, 0.1, 20), (0.3, 0.01, 100), (0.1, 0.3, 5)])
@pytest.mark.parametrize("neighbours", [Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE])
def test_the_bound_is_above_privacy_loss_distributions_where_these_are_exact(noise, rate, steps, neighbours):
    moved = 2 if neighbours is Neighbours.REPLACE_ONE else 1
    bound = Inclusions(steps, rate, (moved / noise) ** 2)
    event = dpsgd_event(rate, noise, steps)
    for delta in (1e-3, 1e-6):
        assert bound.epsilon(delta) >= PLD.epsilon(event, delta, neighbours) * (1 - 1e-3)
    for epsilon in (1.0, 10.0):
        assert bound.delta(epsilon) >= PLD.delta(event, epsilon, neighbours) * (1 - 1e-3)


@pytest.mark.parametrize("steps", [1, 2])
def test_the_bound_is_above_the_divergence_by_integration(steps):
    """Of the composed mixtures themselves, against noise alone and the other way round."""
    rate, distance, epsilon = 0.2, 3.0, 2.0
    grid = np.linspace(-12, 15, 2001 if steps > 1 else 200_001)
    one = (1 - rate) * stats.norm.pdf(grid) + rate * stats.norm.pdf(grid - distance)
    densities = [values if steps == 1 else np.multiply.outer(values, values) for values in (one, stats.norm.pdf(grid))]
    cell = (grid[1] - grid[0]) ** steps
    for upper, lower in (densities, densities[::-1]):
        divergence = np.maximum(upper - math.exp(epsilon) * lower, 0).sum() * cell
        assert Inclusions(steps, rate, distance**2).delta(epsilon) >= divergence


def test_inclusions_that_all_happen_are_gaussians():
    bound = Inclusions(4, 1.0, 0.25, always=3.0)
    assert bound.delta(2.0) == pytest.approx(special.ndtr(1 - 1), rel=1e-8)


def test_tiny_noise_costs_what_inclusions_cost():
    """From c = 2 on a grid of losses is too coarse; epsilon grows with the square of the sensitivity nevertheless."""

    def epsilon(c):
        said = tanh_filter_statements(
            sampling_rate=256 / 60_000, noise_std=1.1, steps=3515, delta=1e-5, numbers=26_010, c=c
        )
        return said.actual.epsilon

    once = epsilon(1.0)
    for c in (2.0, 4.0, 30.0):
        assert epsilon(c) == pytest.approx(c**2 * once, rel=3e-3)


def test_ordinary_epsilons_are_those_of_the_losses(monkeypatch):
    asked = []
    monkeypatch.setattr(Inclusions, "epsilon", lambda bound, delta: asked.append(bound) or 0.0)
    assert PLD.epsilon(dpsgd_event(0.011, 1.07, 777), 1e-5, Neighbours.ADD_REMOVE) > 0.5
    assert not asked


def test_the_bound_is_for_sampled_gaussians_and_whatever_is_on_all_records():
    one, other = dpsgd_event(0.01, 0.001, 10), dpsgd_event(0.02, 0.001, 10)
    look, laplace = dp_event.GaussianDpEvent(2.0), dp_event.LaplaceDpEvent(2.0)

    def inclusions(*events):
        return PLD._losses(dp_event.ComposedDpEvent(list(events)), Neighbours.ADD_REMOVE).inclusions

    first, second = Inclusions(10, 0.01, pytest.approx(1e6)), Inclusions(10, 0.02, pytest.approx(1e6))
    assert inclusions(one) == (first,)
    assert inclusions(one, look) == (Inclusions(10, 0.01, pytest.approx(1e6), 0.25),)
    assert inclusions(one, other) == (first, second)
    assert inclusions(one, laplace) == ()


@pytest.mark.parametrize(
    ("neighbours", "moved"), [(Neighbours.ADD_REMOVE, 1), (Neighbours.REPLACE_ONE, 2), (Neighbours.ZERO_OUT, 1)]
)
def test_a_replaced_record_moves_twice_as_far(neighbours, moved):
    (bound,) = PLD._losses(dpsgd_event(0.01, 0.001, 10), neighbours).inclusions
    assert bound.precision == pytest.approx(moved**2 * 1e6)


def test_several_kinds_share_delta():
    events = [dpsgd_event(0.005, noise, 390) for noise in (1e-4, 2e-4)]
    kinds = [Inclusions(390, 0.005, noise**-2) for noise in (1e-4, 2e-4)]
    together = PLD.epsilon(dp_event.ComposedDpEvent(events), 1e-5, Neighbours.ADD_REMOVE)
    assert together == pytest.approx(sum(kind.epsilon(5e-6) for kind in kinds), rel=1e-12)
    assert together > sum(kind.epsilon(1e-5) for kind in kinds) * (1 + 1e-6)


def test_several_tiny_noises_cost_no_more_than_their_sum():
    events = [dpsgd_event(256 / 50_000, 1.1 / (c * math.sqrt(30_000)), 390) for c in (1, 2, 4)]
    together = PLD.epsilon(dp_event.ComposedDpEvent(events), 1e-5, Neighbours.ADD_REMOVE)
    each = [PLD.epsilon(event, 1e-5 / 3, Neighbours.ADD_REMOVE) for event in events]
    assert max(each) < together <= sum(each) * (1 + 1e-3)  # alone, the grid may be a little lower
