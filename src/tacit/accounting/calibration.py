r"""Calibration: the least noise, the most steps, the largest sampling rate or batch that a budget allows.

Every answer is feasible as the accountant itself counts, never above the budget. A real parameter lies within 0.1 % of
the best one; a whole one is the best.
"""

import dataclasses
import math
from collections.abc import Callable

from dp_accounting import DpEvent

from tacit.accounting.base import Accountant
from tacit.accounting.budget_gap import BudgetGap
from tacit.accounting.events import dpsgd_event
from tacit.accounting.search import TOLERANCE, Start, approximate_root, largest_feasible, least_feasible
from tacit.core.errors import InputError
from tacit.core.privacy import Budget, Neighbours
from tacit.core.validation import check_count, check_positive, check_probability

SMALLEST_NOISE, LARGEST_NOISE = 1e-3, 1e7
SMALLEST_RATE = 1e-12
MOST_STEPS = 10**9
_SHYNESS = 0.5 * TOLERANCE  # what is infeasible is cheaper to see, as one direction suffices


def calibrate_noise(
    make_event: Callable[[float], DpEvent],
    budget: Budget,
    *,
    accountant: str | Accountant = "pld",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> float:
    """The least noise multiplier for which ``make_event(noise_multiplier)`` keeps to the budget.

    Args:
        make_event: from a noise multiplier to the whole event. Epsilon must fall as the noise grows.
        budget: epsilon and delta, both above 0.
        accountant: one whose epsilon is a proven upper bound.
        neighbours: the relation that the budget speaks of.

    Returns:
        A noise multiplier whose certified epsilon is at most the budget's, within 0.1 % of the least; at least
        `SMALLEST_NOISE`.

    Raises:
        InputError: no noise up to `LARGEST_NOISE` suffices, as when other parts of the event spend too much.
        UnsupportedError: the accountant is only an estimate or cannot bound the event.
    """
    gap = BudgetGap.of(budget, accountant, neighbours)
    bounds = math.log(SMALLEST_NOISE), math.log(LARGEST_NOISE)
    return math.exp(_least(gap, lambda x: make_event(math.exp(x)), 0.0, *bounds))


def calibrate_sampling_rate(
    make_event: Callable[[float], DpEvent],
    budget: Budget,
    *,
    accountant: str | Accountant = "pld",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> float:
    """The largest sampling rate for which ``make_event(sampling_rate)`` keeps to the budget, within 0.1 %."""
    gap = BudgetGap.of(budget, accountant, neighbours)
    return math.exp(-_least(gap, lambda x: make_event(math.exp(-x)), -math.log(0.01), 0.0, -math.log(SMALLEST_RATE)))


def calibrate_steps(
    make_event: Callable[[int], DpEvent],
    budget: Budget,
    *,
    accountant: str | Accountant = "pld",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> int:
    """The largest number of steps, up to `MOST_STEPS`, for which ``make_event(steps)`` keeps to the budget.

    An `InputError` where not even one step does.
    """
    return _largest(make_event, budget, accountant, neighbours, MOST_STEPS)


def calibrate_batch_size(
    make_event: Callable[[int], DpEvent],
    budget: Budget,
    examples: int,
    *,
    accountant: str | Accountant = "pld",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> int:
    """The largest batch, up to all ``examples``, for which ``make_event(batch_size)`` keeps to the budget.

    An `InputError` where not even a batch of one does.
    """
    return _largest(make_event, budget, accountant, neighbours, check_count("examples", examples))


def calibrate_dpsgd_noise(
    sampling_rate: float,
    steps: int,
    budget: Budget,
    *,
    accountant: str | Accountant = "pld",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> float:
    """The least noise multiplier for DP-SGD with Poisson sampling. See `calibrate_noise`."""
    check_probability("sampling_rate", sampling_rate)
    check_count("steps", steps)
    return calibrate_noise(
        lambda noise: dpsgd_event(sampling_rate, noise, steps), budget, accountant=accountant, neighbours=neighbours
    )


def calibrate_dpsgd_steps(
    sampling_rate: float,
    noise_multiplier: float,
    budget: Budget,
    *,
    accountant: str | Accountant = "pld",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> int:
    """The largest number of steps of DP-SGD with Poisson sampling. See `calibrate_steps`."""
    check_positive("noise_multiplier", noise_multiplier)
    return calibrate_steps(
        lambda steps: dpsgd_event(sampling_rate, noise_multiplier, steps),
        budget,
        accountant=accountant,
        neighbours=neighbours,
    )


def calibrate_dpsgd_sampling_rate(
    noise_multiplier: float,
    steps: int,
    budget: Budget,
    *,
    accountant: str | Accountant = "pld",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> float:
    """The largest sampling rate of DP-SGD with Poisson sampling. See `calibrate_sampling_rate`.

    The expected batch size is this rate times the number of examples.
    """
    check_positive("noise_multiplier", noise_multiplier)
    check_count("steps", steps)
    return calibrate_sampling_rate(
        lambda rate: dpsgd_event(rate, noise_multiplier, steps), budget, accountant=accountant, neighbours=neighbours
    )


def calibrate_dpsgd_batch_size(
    examples: int,
    noise_multiplier: float,
    steps: int,
    budget: Budget,
    *,
    accountant: str | Accountant = "pld",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> int:
    """The largest expected batch size of DP-SGD with Poisson sampling from ``examples`` records, a whole number."""
    check_positive("noise_multiplier", noise_multiplier)
    check_count("steps", steps)
    return calibrate_batch_size(
        lambda batch_size: dpsgd_event(batch_size / examples, noise_multiplier, steps),
        budget,
        examples,
        accountant=accountant,
        neighbours=neighbours,
    )


def _least(gap: BudgetGap, make_event: Callable[[float], DpEvent], start: float, low: float, high: float) -> float:
    """The least feasible x, from where quicker means say that it lies."""
    found = _start(gap, make_event, Start(start), low, high)
    found = dataclasses.replace(found, x=found.x - _SHYNESS)
    return least_feasible(lambda x: gap.certified(make_event(x)), found, low, high)


def _start(gap: BudgetGap, make_event: Callable[[float], DpEvent], start: Start, low: float, high: float) -> Start:
    """Where the estimates vanish: first the limit of many steps, then the accountant's own estimate."""
    start = approximate_root(lambda x: gap.in_the_limit(make_event(x)), start, low, high)
    return approximate_root(lambda x: gap.estimated(make_event(x)), start, low, high)


def _largest(
    make_event: Callable[[int], DpEvent],
    budget: Budget,
    accountant: str | Accountant,
    neighbours: Neighbours,
    highest: int,
) -> int:
    gap = BudgetGap.of(budget, accountant, neighbours)

    def make_rounded(x: float) -> DpEvent:
        return make_event(min(max(round(math.exp(-x)), 1), highest))

    start = _start(gap, make_rounded, Start(0.0, rate=0.5), -math.log(highest), 0.0)
    found = largest_feasible(lambda n: gap.certified(make_event(n)), highest, start)
    if found == 0:
        raise InputError(
            f"epsilon={budget.epsilon!r}: is exceeded at a value of 1 already. Allow a larger epsilon or more noise."
        )
    return found
