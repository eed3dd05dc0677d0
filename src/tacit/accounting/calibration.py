r"""Calibration: the least noise, the most steps, the largest sampling rate or batch that a budget allows.

Every answer is feasible as the accountant itself counts, never above the budget. A real parameter lies within 0.1 % of
the best one; a whole one is the best.
"""

import math
from collections.abc import Callable
from typing import TypeVar

from dp_accounting import DpEvent

from tacit.accounting.accountants import epsilon, find_accountant
from tacit.accounting.base import Accountant
from tacit.accounting.events import dpsgd_event
from tacit.accounting.search import largest_feasible, least_feasible
from tacit.core.errors import InputError
from tacit.core.privacy import Budget, Neighbours
from tacit.core.validation import check_count, check_open_unit, check_positive, check_probability

SMALLEST_NOISE, LARGEST_NOISE = 1e-3, 1e7
SMALLEST_RATE = 1e-12
MOST_STEPS = 10**9

_Parameter = TypeVar("_Parameter", int, float)


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
    gap = _gap(make_event, budget, accountant, neighbours)
    log_noise = least_feasible(lambda x: gap(math.exp(x)), 0.0, math.log(SMALLEST_NOISE), math.log(LARGEST_NOISE))
    return math.exp(log_noise)


def calibrate_sampling_rate(
    make_event: Callable[[float], DpEvent],
    budget: Budget,
    *,
    accountant: str | Accountant = "pld",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> float:
    """The largest sampling rate for which ``make_event(sampling_rate)`` keeps to the budget, within 0.1 %."""
    gap = _gap(make_event, budget, accountant, neighbours)
    log_inverse = least_feasible(lambda x: gap(math.exp(-x)), -math.log(0.01), 0.0, -math.log(SMALLEST_RATE))
    return math.exp(-log_inverse)


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


def _gap(
    make_event: Callable[[_Parameter], DpEvent],
    budget: Budget,
    accountant: str | Accountant,
    neighbours: Neighbours,
) -> Callable[[_Parameter], float]:
    """log(epsilon / target) of a parameter; it is at most 0 exactly where epsilon keeps to the target."""
    chosen = find_accountant(accountant, upper_bounds_only=True)
    target = check_positive("epsilon", budget.epsilon, remedy="Typical budgets lie between 0.1 and 10.")
    delta = check_open_unit("delta", budget.delta, remedy="Take it well below 1 / number of examples, such as 1e-5.")

    def gap(parameter: _Parameter) -> float:
        spent = epsilon(make_event(parameter), delta, accountant=chosen, neighbours=neighbours)
        if spent == 0 or spent == math.inf:
            return -math.inf if spent == 0 else math.inf
        ratio = math.log(spent / target)
        return min(ratio, 0.0) if spent <= target else max(ratio, 5e-324)

    return gap


def _largest(
    make_event: Callable[[int], DpEvent],
    budget: Budget,
    accountant: str | Accountant,
    neighbours: Neighbours,
    highest: int,
) -> int:
    gap = _gap(make_event, budget, accountant, neighbours)
    found = largest_feasible(gap, highest)
    if found == 0:
        raise InputError(
            f"epsilon={budget.epsilon!r}: is exceeded at a value of 1 already. Allow a larger epsilon or more noise."
        )
    return found
