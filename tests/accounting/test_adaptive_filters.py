"""Filters and odometers against the best adversary there is, found exactly by backward induction."""

import functools
import math
from collections.abc import Callable

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import epsilon, gaussian_delta, pure_to_rdp
from tacit.accounting.filters import NO_COST, RenyiCost, RenyiFilter, RenyiOdometer, renyi_cost
from tacit.accounting.renyi import ORDERS
from tacit.core import Budget, InputError, Neighbours, UnsupportedError

ADD_REMOVE = Neighbours.ADD_REMOVE


def bit_cost(pure: float, *, counts_as_pure: bool = True) -> RenyiCost:
    """Randomised response on one bit: the worst pure mechanism at every order."""
    divergences = np.array([pure_to_rdp(pure, float(order)) for order in ORDERS])
    return RenyiCost(divergences, pure if counts_as_pure else math.inf)


def best_attack(
    admits: Callable[[RenyiCost], bool], choices: tuple[float, ...], at: float, *, counts_as_pure: bool = True
) -> float:
    """The largest P(S) - e^epsilon Q(S) that any adversary reaches who sees each answer and then chooses the next.

    It plays randomised response at one of ``choices`` or stops, as long as the filter admits. The value of a state is
    (1 - e^(epsilon - loss))+ on stopping, and the expectation under P of the next state's otherwise.
    """
    costs = [bit_cost(choice, counts_as_pure=counts_as_pure) for choice in choices]

    @functools.cache
    def admitted(counts: tuple[int, ...]) -> bool:
        return admits(sum((cost * count for cost, count in zip(costs, counts, strict=True)), NO_COST))

    @functools.cache
    def value(counts: tuple[int, ...], ups: tuple[int, ...]) -> float:
        loss = sum(c * (2 * up - n) for c, n, up in zip(choices, counts, ups, strict=True))
        best = max(0.0, -math.expm1(at - loss))
        for index, choice in enumerate(choices):
            after = tuple(n + (i == index) for i, n in enumerate(counts))
            if admitted(after):
                up = tuple(n + (i == index) for i, n in enumerate(ups))
                likely = 1 / (1 + math.exp(-choice))
                best = max(best, likely * value(after, up) + (1 - likely) * value(after, ups))
        return best

    start = (0,) * len(choices)
    return value(start, start)


@pytest.mark.parametrize("budget", [Budget(1.0, 0.05), Budget(2.0, 0.02), Budget(0.5, 0.2)])
@pytest.mark.parametrize("counts_as_pure", [True, False])
def test_no_adversary_gets_past_the_budget(budget: Budget, counts_as_pure: bool) -> None:
    choices = (0.12 * budget.epsilon, 0.3 * budget.epsilon)
    rule = RenyiFilter(budget)
    attack = best_attack(rule.admits, choices, budget.epsilon, counts_as_pure=counts_as_pure)
    assert attack <= budget.delta
    assert attack > 0 or counts_as_pure  # the adversary does get somewhere: the test could fail


def test_the_adversary_sees_through_broken_filters() -> None:
    budget = Budget(1.0, 0.05)
    rule, choices = RenyiFilter(budget), (0.25, 0.4)
    broken: dict[str, Callable[[RenyiCost], bool]] = {
        "forgets half": lambda total: rule.admits(RenyiCost(total.divergences / 2, total.pure)),
        "no price for delta": lambda total: bool((total.divergences[:100] <= budget.epsilon).any()),
        "twice epsilon": RenyiFilter(Budget(2.0, 0.05)).admits,
    }
    for name, admits in broken.items():
        assert best_attack(admits, choices, budget.epsilon) > budget.delta, name


def test_an_adaptive_gaussian_analyst_stays_within_the_budget() -> None:
    """Simulated: after a lucky result take the rest of the budget at once, after an unlucky one small steps."""
    budget, draws = Budget(1.0, 0.05), 200_000
    rule = RenyiFilter(budget)

    def gaussian(noise: float) -> RenyiCost:
        return renyi_cost(dp_accounting.GaussianDpEvent(noise), ADD_REMOVE)

    small = gaussian(4.0)
    steps = next(n for n in range(1, 100) if not rule.admits(small * (n + 1)))
    large = next(noise for noise in np.arange(0.5, 20, 0.1).tolist() if rule.admits(small + gaussian(noise)))
    generator = np.random.default_rng(7)

    def loss(noise: float) -> np.ndarray:
        answers = generator.normal(1.0, noise, draws)  # the sum is 1 with the record and 0 without
        return (2 * answers - 1) / (2 * noise**2)

    total = loss(4.0)
    lucky = total > 0.1
    rest = sum(loss(4.0) for _ in range(steps - 1))
    total = np.where(lucky, total + loss(large), total + rest)
    gains = np.maximum(0.0, -np.expm1(budget.epsilon - total))
    assert gains.mean() + 4 * gains.std() / math.sqrt(draws) <= budget.delta
    assert gains.mean() > 0.1 * budget.delta


def test_an_odometer_holds_wherever_the_adversary_stops() -> None:
    """Stopping at a reading epsilon gains (1 - e^(epsilon - loss))+; over all stops together at most delta."""
    odometer, choices = RenyiOdometer(0.05), (0.3,)
    cost = bit_cost(0.3, counts_as_pure=False)
    readings = [odometer.reading(cost * n) for n in range(25)]
    assert readings == sorted(readings)
    likely = 1 / (1 + math.exp(-0.3))

    @functools.cache
    def value(n: int, up: int, factor: float) -> float:
        best = max(0.0, -math.expm1(factor * readings[n] - choices[0] * (2 * up - n))) if n else 0.0
        if n + 1 < len(readings):
            best = max(best, likely * value(n + 1, up + 1, factor) + (1 - likely) * value(n + 1, up, factor))
        return best

    assert value(0, 0, 1.0) <= 0.05
    assert value(0, 0, 0.25) > 0.05  # a quarter of the reading is not enough


def test_the_filter_is_nearly_as_good_as_renyi_accounting_of_the_same_plan() -> None:
    budget, event = Budget(3.0, 1e-5), dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
    rule, cost = RenyiFilter(budget), renyi_cost(event, ADD_REMOVE)
    steps = next(n for n in range(1000, 10_000, 10) if not rule.admits(cost * n)) - 10
    known = epsilon(dp_accounting.SelfComposedDpEvent(event, steps), 1e-5, accountant="rdp")
    assert known <= rule.epsilon(cost * steps) <= 1.1 * known


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 20), st.floats(1e-9, 1e-2), st.floats(0.5, 50), st.integers(1, 40))
def test_the_filter_never_admits_what_a_fixed_plan_may_not(eps: float, delta: float, noise: float, steps: int) -> None:
    cost = renyi_cost(dp_accounting.GaussianDpEvent(noise), ADD_REMOVE) * steps
    if RenyiFilter(Budget(eps, delta)).admits(cost):
        assert gaussian_delta(noise / math.sqrt(steps), eps) <= delta
    reading = RenyiOdometer(delta).reading(cost)
    if reading < math.inf:
        assert gaussian_delta(noise / math.sqrt(steps), reading) <= delta


def test_the_shares_of_delta_add_up() -> None:
    for budget in (Budget(0.01, 1e-9), Budget(1.0, 1e-5), Budget(50.0, 0.01)):
        rule = RenyiFilter(budget)
        indices, overhead = rule._conversion
        orders = ORDERS[indices]
        shares = np.exp((np.log1p(-1 / orders) - overhead) * (orders - 1)) / orders
        assert shares.sum() == pytest.approx(budget.delta, rel=1e-9)
        assert len(np.unique(indices)) == len(indices)


def test_pure_releases_add_up_without_delta() -> None:
    laplace = renyi_cost(dp_accounting.LaplaceDpEvent(10.0), ADD_REMOVE)
    rule = RenyiFilter(Budget(1.0, 0.0))
    assert rule.admits(laplace * 9)
    assert not rule.admits(laplace * 11)
    assert not rule.admits(renyi_cost(dp_accounting.GaussianDpEvent(1e6), ADD_REMOVE))
    assert RenyiFilter(Budget(1.0, 0.0), examples=4).epsilon(laplace * 2) == pytest.approx(0.8)


@pytest.mark.parametrize("examples", [2, 5])
def test_a_group_pays_by_group_privacy(examples: int) -> None:
    budget = Budget(2.0, 1e-5)
    rule, cost = RenyiFilter(budget, examples), renyi_cost(dp_accounting.GaussianDpEvent(40.0), ADD_REMOVE)
    steps = next(n for n in range(1, 10_000) if not rule.admits(cost * (n + 1)))
    # For Gaussian noise a group of k has exactly the curve of 1/k of the multiplier, so this must hold.
    assert gaussian_delta(40.0 / examples / math.sqrt(steps), 2.0) <= 1e-5
    assert RenyiFilter(Budget(1000.0, 1e-5), examples).orders.size == 0


def test_nothing_costs_nothing_and_no_noise_costs_everything() -> None:
    rule = RenyiFilter(Budget(1.0, 1e-5))
    assert rule.epsilon(NO_COST) == 0
    assert RenyiOdometer(1e-5).reading(NO_COST) == 0
    none = renyi_cost(dp_accounting.NonPrivateDpEvent(), ADD_REMOVE)
    assert rule.epsilon(none) == RenyiOdometer(1e-5).reading(none) == math.inf
    assert (none * 0).pure == 0


def test_what_nobody_bounds_is_refused() -> None:
    with pytest.raises(UnsupportedError):
        renyi_cost(dp_accounting.UnsupportedDpEvent(), ADD_REMOVE)
    with pytest.raises(InputError, match="delta=0"):
        RenyiOdometer(0.0)
    with pytest.raises(InputError, match="examples=0"):
        RenyiFilter(Budget(1.0, 1e-5), 0)
