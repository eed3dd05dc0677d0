"""Units of several examples: never below what an exact oracle says, and one example is the plain accountant."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from tacit.accounting import ACCOUNTANTS, delta, dpsgd_event, epsilon, group_privacy
from tacit.accounting.groups import GroupAccountant, for_unit
from tacit.core import Budget, InputError, Neighbours, UnsupportedError

ADD_REMOVE = Neighbours.ADD_REMOVE
PLD, RDP, BASIC = ACCOUNTANTS["pld"], ACCOUNTANTS["rdp"], ACCOUNTANTS["basic"]
TRAINING = dpsgd_event(0.01, 1.0, 200)
SLACK = 1e-3  # what the searches may leave
GAUSSIAN = dp_event.GaussianDpEvent(8.0)


def gaussian_delta(at: float, noise_multiplier: float) -> float:
    """Exact, Balle and Wang 2018."""
    half, shift = 1 / (2 * noise_multiplier), at * noise_multiplier
    return float(stats.norm.cdf(half - shift) - math.exp(at) * stats.norm.cdf(-half - shift))


def gaussian_epsilon(target: float, noise_multiplier: float) -> float:
    return float(optimize.brentq(lambda at: gaussian_delta(at, noise_multiplier) - target, 0, 200))


def test_a_unit_of_one_example_is_the_accountant_itself() -> None:
    assert for_unit(PLD, 1) is PLD
    one = GroupAccountant(PLD, 1)
    assert one.epsilon(TRAINING, 1e-5, ADD_REMOVE) == pytest.approx(PLD.epsilon(TRAINING, 1e-5, ADD_REMOVE), rel=1e-3)
    assert one.delta(TRAINING, 1.0, ADD_REMOVE) == PLD.delta(TRAINING, 1.0, ADD_REMOVE)


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_a_size_below_one_is_refused(size: float) -> None:
    with pytest.raises(InputError, match=r"^size="):
        GroupAccountant(PLD, size)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("target", [1e-5, 1e-2])
def test_above_the_exact_epsilon_of_k_gaussian_contributions(size: int, target: float) -> None:
    """k examples move a sum by kC, so their exact epsilon is that of k times less noise."""
    ours = GroupAccountant(PLD, size).epsilon(GAUSSIAN, target, ADD_REMOVE)
    exact = gaussian_epsilon(target, GAUSSIAN.noise_multiplier / size)
    assert exact < ours < math.inf
    # Near miss: the epsilon of one example alone would lie below the exact one.
    assert PLD.epsilon(GAUSSIAN, target, ADD_REMOVE) < exact


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("at", [0.2, 1.0, 3.0])
def test_above_the_exact_delta_of_a_poisson_sampled_group(size: int, at: float) -> None:
    """One step, numerically: the group's part of the sum is binomial, and both directions count."""
    rate, noise = 0.2, 1.5
    step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    weights = stats.binom.pmf(np.arange(size + 1), size, rate)

    def mixture(x: float) -> float:
        return float(weights @ stats.norm.pdf(x, loc=np.arange(size + 1), scale=noise))

    def plain(x: float) -> float:
        return float(stats.norm.pdf(x, scale=noise))

    def hockey_stick(upper, lower) -> float:
        def excess(x: float) -> float:
            return max(0.0, upper(x) - math.exp(at) * lower(x))

        return integrate.quad(excess, -12 * noise, size + 12 * noise, limit=400)[0]

    exact = max(hockey_stick(mixture, plain), hockey_stick(plain, mixture))
    assert GroupAccountant(PLD, size).delta(step, at, ADD_REMOVE) >= exact * (1 - 1e-6)


@pytest.mark.parametrize("size", [2, 5])
def test_agrees_with_group_privacy_of_one_guarantee(size: int) -> None:
    """The lemma read at one epsilon is a bound; reading it at every epsilon is no worse."""
    group = GroupAccountant(PLD, size)
    for single in (0.05, 0.3, 0.8):
        budget = group_privacy(Budget(single, PLD.delta(TRAINING, single, ADD_REMOVE)), size)
        assert group.delta(TRAINING, budget.epsilon, ADD_REMOVE) == pytest.approx(budget.delta, rel=1e-9)
        assert group.epsilon(TRAINING, budget.delta, ADD_REMOVE) <= budget.epsilon * (1 + SLACK)


@settings(max_examples=15)
@given(st.integers(2, 6), st.floats(1e-8, 1e-2), st.floats(2.0, 20.0))
def test_epsilon_and_delta_are_inverse_and_monotone(size: int, target: float, noise: float) -> None:
    event = dp_event.GaussianDpEvent(noise)
    group, larger = GroupAccountant(RDP, size), GroupAccountant(RDP, size + 1)
    found = group.epsilon(event, target, ADD_REMOVE)
    assert group.delta(event, found, ADD_REMOVE) <= target
    assert found >= RDP.epsilon(event, target, ADD_REMOVE)
    assert larger.epsilon(event, target, ADD_REMOVE) >= found * (1 - SLACK)
    assert group.epsilon(event, target / 10, ADD_REMOVE) >= found * (1 - SLACK)
    assert group.epsilon(dp_event.GaussianDpEvent(2 * noise), target, ADD_REMOVE) <= found * (1 + SLACK)


def test_the_edges() -> None:
    group = GroupAccountant(PLD, 3)
    assert group.epsilon(dp_event.NoOpDpEvent(), 1e-5, ADD_REMOVE) == 0
    assert group.epsilon(dp_event.NonPrivateDpEvent(), 1e-5, ADD_REMOVE) == math.inf
    assert group.delta(dp_event.NonPrivateDpEvent(), 1.0, ADD_REMOVE) == 1
    assert group.delta(GAUSSIAN, 0.0, ADD_REMOVE) == pytest.approx(3 * PLD.delta(GAUSSIAN, 0.0, ADD_REMOVE))
    assert group.epsilon(dp_event.GaussianDpEvent(0.01), 1e-5, ADD_REMOVE) == math.inf
    assert 0 <= group.delta(GAUSSIAN, 2000.0, ADD_REMOVE) <= 1  # no overflow


def test_the_name_and_the_refusals_are_those_of_the_base() -> None:
    assert GroupAccountant(PLD, 4).name == "pld with group privacy for 4 examples"
    assert GroupAccountant(PLD, 4).is_upper_bound
    assert not GroupAccountant(ACCOUNTANTS["gdp"], 4).is_upper_bound
    group = GroupAccountant(RDP, 2)
    assert not group.supports(TRAINING, Neighbours.REPLACE_ONE)
    with pytest.raises(UnsupportedError):
        group.epsilon(TRAINING, 1e-5, Neighbours.REPLACE_ONE)


def test_a_pure_epsilon_is_multiplied_by_the_size() -> None:
    laplace = dp_event.LaplaceDpEvent(2.0)
    for base in (PLD, RDP, BASIC):
        assert epsilon(laplace, 0.0, accountant=GroupAccountant(base, 3)) == pytest.approx(
            3 * epsilon(laplace, 0.0, accountant=base)
        )
    assert epsilon(GAUSSIAN, 0.0, accountant=GroupAccountant(PLD, 3)) == math.inf
    assert epsilon(dp_event.NoOpDpEvent(), 0.0, accountant=GroupAccountant(PLD, 3)) == 0


def test_the_functions_of_the_room_take_a_group() -> None:
    group = GroupAccountant(PLD, 2)
    assert epsilon(TRAINING, 1e-5, accountant=group) == group.epsilon(TRAINING, 1e-5, ADD_REMOVE)
    assert delta(TRAINING, 1.0, accountant=group) == group.delta(TRAINING, 1.0, ADD_REMOVE)
