"""The accountants by name, and what is asked of them: epsilon, delta, curves and comparisons."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dp_accounting import DpEvent, dp_event

from tacit.accounting.base import Accountant
from tacit.accounting.composition import BASIC, STRONG, STRONG_RIGOROUS
from tacit.accounting.events import check_event
from tacit.accounting.gaussian_dp import GaussianDpAccountant
from tacit.accounting.groups import GroupAccountant
from tacit.accounting.loss_distribution import LossDistributionAccountant
from tacit.accounting.moments import MomentsAccountant
from tacit.accounting.renyi import RenyiAccountant
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.core.validation import check_choice, check_count, check_non_negative, check_open_unit

ACCOUNTANTS: Mapping[str, Accountant] = MappingProxyType(
    {
        accountant.name: accountant
        for accountant in (
            LossDistributionAccountant(),
            RenyiAccountant(),
            MomentsAccountant(),
            GaussianDpAccountant(),
            STRONG,
            STRONG_RIGOROUS,
            BASIC,
        )
    }
)


def find_accountant(accountant: str | Accountant, *, upper_bounds_only: bool = False) -> Accountant:
    """The accountant of a name; an accountant itself, such as ``MomentsAccountant(max_moment=64)``, is passed through.

    With ``upper_bounds_only`` an accountant whose epsilon is only an estimate is an `UnsupportedError`.
    """
    if isinstance(accountant, str):
        check_choice("accountant", accountant, ACCOUNTANTS.keys())
        accountant = ACCOUNTANTS[accountant]
    if upper_bounds_only and not accountant.is_upper_bound:
        proven = ", ".join(repr(name) for name, other in ACCOUNTANTS.items() if other.is_upper_bound)
        raise UnsupportedError(
            f"accountant={accountant.name!r}: is an estimate that can lie below the true epsilon. Use {proven}."
        )
    return accountant


def epsilon(
    event: DpEvent,
    delta: float,
    *,
    accountant: str | Accountant = "pld",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> float:
    """Epsilon of ``event`` at ``delta``.

    Args:
        event: what was done to the records. Its noise multipliers are noise over one record's bound, see `events`.
        delta: in [0, 1). At 0 only mechanisms of pure differential privacy have a finite epsilon.
        accountant: a name in `ACCOUNTANTS`, or an accountant.
        neighbours: the relation that epsilon speaks of.

    Returns:
        A number of at least 0, infinite where there is no guarantee.

    Raises:
        InputError: a value in the event or among the arguments is out of range.
        UnsupportedError: the accountant cannot bound the event under the relation.
    """
    chosen = find_accountant(accountant)
    check_question(event, neighbours)
    if delta == 0 and not isinstance(delta, bool):
        return _pure_epsilon(event, chosen, neighbours)
    return chosen.epsilon(event, check_open_unit("delta", delta), neighbours)


def delta(
    event: DpEvent,
    epsilon: float,
    *,
    accountant: str | Accountant = "pld",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> float:
    """Delta of ``event`` at ``epsilon`` >= 0; 1 where there is no guarantee. Errors are those of `epsilon`."""
    chosen = find_accountant(accountant)
    check_question(event, neighbours)
    return chosen.delta(event, check_non_negative("epsilon", epsilon), neighbours)


def epsilon_by_accountant(
    event: DpEvent, delta: float, neighbours: Neighbours = Neighbours.ADD_REMOVE
) -> dict[str, float]:
    """Epsilon under every accountant that can bound ``event``, by name, the tightest proven one first."""
    check_question(event, neighbours)
    check_open_unit("delta", delta)
    return {
        name: accountant.epsilon(event, delta, neighbours)
        for name, accountant in ACCOUNTANTS.items()
        if accountant.supports(event, neighbours)
    }


def epsilon_over_steps(
    step_event: DpEvent,
    steps: Sequence[int],
    delta: float,
    *,
    accountant: str | Accountant = "pld",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> list[float]:
    """Epsilon after each number of ``steps``, every step being ``step_event``: the curve of a training run.

    More steps never cost less, so where the accountant is an upper bound the least value at that many steps or more
    is taken. That is a bound too, and makes the curve monotone.
    """
    chosen = find_accountant(accountant)
    check_question(step_event, neighbours)
    check_open_unit("delta", delta)
    counts = sorted({check_count("steps", count, minimum=0) for count in steps}, reverse=True)
    known: dict[int, float] = {}
    least = math.inf
    for count in counts:
        value = chosen.epsilon(dp_event.SelfComposedDpEvent(step_event, count), delta, neighbours)
        least = min(least, value) if chosen.is_upper_bound else value
        known[count] = least
    return [known[int(count)] for count in steps]


def _pure_epsilon(event: DpEvent, accountant: Accountant, neighbours: Neighbours) -> float:
    """Epsilon at delta 0: pure guarantees add up, over a unit's examples too, and every other mechanism has none."""
    if isinstance(accountant, GroupAccountant):
        return accountant.size * _pure_epsilon(event, accountant.base, neighbours)
    if not accountant.supports(event, neighbours):
        return accountant.epsilon(event, 0.5, neighbours)  # raises the accountant's own refusal
    return BASIC.epsilon(event, 0.0, neighbours) if BASIC.supports(event, neighbours) else math.inf


def check_question(event: DpEvent, neighbours: Neighbours) -> None:
    """Refuses what is no relation, no event, or an event with values out of range."""
    if not isinstance(neighbours, Neighbours):
        raise InputError(f"neighbours={neighbours!r}: must be a member of Neighbours, such as Neighbours.ADD_REMOVE.")
    check_event(event)
