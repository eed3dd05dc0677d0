"""Calibration never exceeds the budget and wastes next to nothing of it."""

import itertools
import math

import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import accounting
from tacit.accounting import dpsgd_event, epsilon, epsilon_over_steps
from tacit.accounting.search import TOLERANCE, Start, largest_feasible, least_feasible
from tacit.core import Budget, InputError, Neighbours, UnsupportedError


@given(
    st.floats(-4, 0).map(lambda x: 10**x),
    st.floats(0, 5).map(lambda x: round(10**x)),
    st.floats(math.log(0.05), math.log(60)).map(math.exp),
    st.floats(-9, -2).map(lambda x: 10**x),
)
@settings(max_examples=30)
def test_noise_keeps_to_the_budget_and_is_within_a_thousandth(
    rate: float, steps: int, target: float, delta: float
) -> None:
    noise = accounting.calibrate_dpsgd_noise(rate, steps, Budget(target, delta))
    assert epsilon(dpsgd_event(rate, noise, steps), delta) <= target
    if noise > 1.001 * accounting.calibration.SMALLEST_NOISE:
        assert epsilon(dpsgd_event(rate, noise * 0.999, steps), delta) > target


@pytest.mark.parametrize("accountant", ["rdp", "moments", "basic", "strong-rigorous"])
def test_every_proven_accountant_calibrates(accountant: str) -> None:
    budget = Budget(2.0, 1e-5)
    noise = accounting.calibrate_dpsgd_noise(0.01, 500, budget, accountant=accountant)
    assert epsilon(dpsgd_event(0.01, noise, 500), 1e-5, accountant=accountant) <= 2.0
    assert epsilon(dpsgd_event(0.01, noise * 0.999, 500), 1e-5, accountant=accountant) > 2.0
    assert noise >= accounting.calibrate_dpsgd_noise(0.01, 500, budget) * 0.999


@pytest.mark.parametrize("accountant", ["gdp", "strong"])
def test_an_estimate_cannot_calibrate(accountant: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"accountant='{accountant}': is an estimate.*Use 'pld', 'rdp'"):
        accounting.calibrate_dpsgd_noise(0.01, 100, Budget(1.0, 1e-5), accountant=accountant)


def test_one_gaussian_equals_the_analytic_noise() -> None:
    for target in (0.1, 1.0, 10.0):
        found = accounting.calibrate_noise(dp_event.GaussianDpEvent, Budget(target, 1e-6))
        assert found == pytest.approx(accounting.gaussian_noise(target, 1e-6), rel=1e-3)
        assert found >= accounting.gaussian_noise(target, 1e-6) * (1 - 1e-8)


def test_other_mechanisms_and_relations() -> None:
    laplace = accounting.calibrate_noise(dp_event.LaplaceDpEvent, Budget(0.5, 1e-6))
    assert laplace == pytest.approx(2.0, rel=2e-3)
    replaced = accounting.calibrate_dpsgd_noise(0.05, 100, Budget(2.0, 1e-5), neighbours=Neighbours.REPLACE_ONE)
    assert replaced > 1.3 * accounting.calibrate_dpsgd_noise(0.05, 100, Budget(2.0, 1e-5))

    def without_replacement(noise: float) -> dp_event.DpEvent:
        step = dp_event.SampledWithoutReplacementDpEvent(1000, 50, dp_event.GaussianDpEvent(noise))
        return dp_event.SelfComposedDpEvent(step, 20)

    budget = Budget(3.0, 1e-5)
    noise = accounting.calibrate_noise(without_replacement, budget, accountant="rdp", neighbours=Neighbours.REPLACE_ONE)
    spent = epsilon(without_replacement(noise), 1e-5, accountant="rdp", neighbours=Neighbours.REPLACE_ONE)
    assert 2.97 < spent <= 3.0


def test_steps_are_the_most_that_fit() -> None:
    steps = accounting.calibrate_dpsgd_steps(0.01, 1.0, Budget(2.0, 1e-5))
    assert epsilon(dpsgd_event(0.01, 1.0, steps), 1e-5) <= 2.0 < epsilon(dpsgd_event(0.01, 1.0, steps + 1), 1e-5)
    assert accounting.calibrate_dpsgd_steps(1e-6, 1e5, Budget(50.0, 1e-5)) == accounting.calibration.MOST_STEPS
    with pytest.raises(InputError, match=r"epsilon=0\.1: is exceeded at a value of 1 already"):
        accounting.calibrate_dpsgd_steps(1.0, 1.0, Budget(0.1, 1e-5))


def test_sampling_rate_and_batch_size_are_the_largest_that_fit() -> None:
    budget = Budget(2.0, 1e-5)
    rate = accounting.calibrate_dpsgd_sampling_rate(1.0, 1000, budget)
    assert epsilon(dpsgd_event(rate, 1.0, 1000), 1e-5) <= 2.0 < epsilon(dpsgd_event(rate * 1.001, 1.0, 1000), 1e-5)
    batch = accounting.calibrate_dpsgd_batch_size(50_000, 1.0, 1000, budget)
    assert batch == pytest.approx(rate * 50_000, rel=2e-3)
    assert epsilon(dpsgd_event((batch + 1) / 50_000, 1.0, 1000), 1e-5) > 2.0
    assert accounting.calibrate_dpsgd_sampling_rate(1000.0, 10, budget) == 1.0
    assert accounting.calibrate_dpsgd_batch_size(300, 1000.0, 10, budget) == 300


def test_what_cannot_be_met_says_so() -> None:
    fixed = dp_event.GaussianDpEvent(0.5)
    with pytest.raises(InputError, match="times the target"):
        accounting.calibrate_noise(
            lambda noise: dp_event.ComposedDpEvent([fixed, dp_event.GaussianDpEvent(noise)]), Budget(1.0, 1e-5)
        )
    with pytest.raises(InputError, match="epsilon=0: must be a finite number above 0"):
        accounting.calibrate_dpsgd_noise(0.1, 10, Budget(0, 1e-5))
    with pytest.raises(InputError, match="delta=0: must lie strictly between 0 and 1"):
        accounting.calibrate_dpsgd_noise(0.1, 10, Budget(1.0, 0))
    with pytest.raises(InputError, match="steps=0: must be at least 1"):
        accounting.calibrate_dpsgd_noise(0.1, 0, Budget(1.0, 1e-5))
    with pytest.raises(InputError, match="sampling_rate=2: must be above 0 and at most 1"):
        accounting.calibrate_dpsgd_noise(2, 10, Budget(1.0, 1e-5))


def test_bad_questions_say_what_is_wrong() -> None:
    event = dpsgd_event(0.1, 1.0, 10)
    with pytest.raises(InputError, match=r"delta=1\.0: must lie strictly between 0 and 1"):
        epsilon(event, 1.0)
    with pytest.raises(InputError, match="accountant='prv': must be one of basic, gdp"):
        epsilon(event, 1e-5, accountant="prv")
    with pytest.raises(InputError, match="neighbours='add-remove': must be a member of Neighbours"):
        epsilon(event, 1e-5, neighbours="add-remove")
    with pytest.raises(InputError, match="must be an event of dp-accounting"):
        epsilon("event", 1e-5)
    with pytest.raises(InputError, match=r"noise_multiplier=-1\.0: must be"):
        epsilon(dp_event.GaussianDpEvent(-1.0), 1e-5)
    with pytest.raises(InputError, match="epsilon=-1: must be a finite number of at least 0"):
        accounting.delta(event, -1)
    with pytest.raises(InputError, match="sampling_probs"):
        epsilon(dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.4]), 1e-5)


@pytest.mark.parametrize("accountant", ["pld", "rdp", "gdp"])
def test_the_curve_over_steps_is_monotone_and_ends_at_the_whole(accountant: str) -> None:
    step = dpsgd_event(0.01, 1.0, 1).event
    steps = [0, *range(20, 1001, 20)]
    curve = epsilon_over_steps(step, steps, 1e-5, accountant=accountant)
    assert len(curve) == len(steps)
    assert curve[0] == 0
    assert all(a < b for a, b in itertools.pairwise(curve))
    assert curve[-1] == epsilon(dpsgd_event(0.01, 1.0, 1000), 1e-5, accountant=accountant)
    assert epsilon_over_steps(step, [1000, 20, 20], 1e-5, accountant=accountant) == [curve[-1], curve[1], curve[1]]


@given(st.floats(-6, 15), st.floats(0.3, 4), st.floats(-0.05, 0.05))
def test_least_feasible_finds_the_root_of_any_falling_curve(root: float, slope: float, bend: float) -> None:
    calls = []

    def gap(x: float) -> float:
        calls.append(x)
        return slope * (root - x) * (1 + bend * math.tanh(x - root))

    found = least_feasible(gap, Start(0.0), -6.9, 16.2)
    assert gap(found) <= 0
    assert found - root <= TOLERANCE
    assert len(calls) < 60


@given(st.integers(0, 10**7), st.floats(0.2, 2))
def test_largest_feasible_finds_the_last_whole_number(limit: int, power: float) -> None:
    found = largest_feasible(lambda n: power * math.log(n / (limit + 0.5)) if limit else 1.0, 10**9)
    assert found == limit
