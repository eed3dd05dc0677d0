"""How recipes are run, apart from what they are, and who is told on the way."""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from dp_accounting import ComposedDpEvent

from tacit.core.errors import InputError
from tacit.core.validation import check_count
from tacit.ledger import Account
from tacit.plan import DPSGD
from tacit.training.execution import Execution
from tacit.training.run_folder import command_line, hardware, now, versions

FEATURES, PUBLIC, TRAINING = "features", "public start", "training"

Progress = Callable[[int, int, int, float | None, str], None]
"""Called now and then with the model's number, the steps done, how many it takes, epsilon so far (None without a
guarantee), and what goes on: `FEATURES`, whose steps are inputs, `PUBLIC`, whose steps cost nothing, or `TRAINING`."""


@dataclasses.dataclass(frozen=True)
class Conditions:
    """How a recipe is run, apart from what it is.

    Attributes:
        seeds: how many independent models.
        held_out: whether `HELD_OUT` training examples are kept from training and measured on, in place of the test set.
            Whatever is chosen must be chosen so.
        device: where.
        execution: how fast.
        points: at how many steps epsilon and accuracy are looked at on the way.
        account: where the budget comes from; every model of every seed is charged by itself. It pays for figures on the
            test set, not on held-out examples, and is asked for all seeds before the first.
        jobs: how many models at most train at a time, each in a process of its own; 1 trains all of them in this one.
    """

    seeds: int = 1
    held_out: bool = False
    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))
    execution: Execution = dataclasses.field(default_factory=Execution)
    points: int = 20
    account: Account | None = None
    jobs: int = 1

    def __post_init__(self) -> None:
        check_count("seeds", self.seeds)
        check_count("jobs", self.jobs)
        if self.account is None:
            return
        if self.jobs > 1:
            raise InputError(
                f"jobs={self.jobs}: models that an account pays for are trained one after another. Leave out jobs, or "
                "the ledger."
            )
        if self.held_out:
            raise InputError(
                "held_out: its accuracies are figures on private examples without noise, which no budget pays for. "
                "Leave it out, and measure on the test set or choose with --private."
            )

    def refuse_account(self) -> None:
        """Raises where there is an account: for what has no noise, or shows more than noise covers."""
        if self.account is not None:
            raise InputError(
                "account: no budget pays for what these settings show without noise. Leave it out, or take private "
                "settings where there are some."
            )

    def require(self, plans: Sequence[DPSGD]) -> None:
        """Asks the account, where there is one, for all seeds of these plans, before the first model is trained.

        A budget that ended on the way would leave models that were paid for, and no result.

        Raises:
            BudgetExceededError: it does not hold them; nothing was spent.
        """
        if self.account is None:
            return
        everything = ComposedDpEvent([plan.event() for plan in plans for _ in range(self.seeds)])
        self.account.require(everything, neighbours=plans[0].neighbours, unit=plans[0].unit)


def provenance(conditions: Conditions) -> dict[str, Any]:
    """Where a figure comes from."""
    return {
        "seeds": conditions.seeds,
        "jobs": conditions.jobs,
        "hardware": hardware(conditions.device),
        "versions": versions(),
        "command": command_line(),
        "date": now(),
    }


def seed_facts(
    accuracies: Sequence[float], seconds: Sequence[float], history: Sequence[Mapping[str, Any]], conditions: Conditions
) -> dict[str, Any]:
    """What every result says of its seeds, which after Ctrl-C are fewer than were asked for, and where it comes from.

    Args:
        accuracies, seconds: of each seed that has ended.
        history: of them all.
        conditions: how they were run.
    """
    return {
        "measured": statistics.fmean(accuracies),
        "std": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        "accuracies": list(accuracies),
        "seconds": sum(seconds),
        "seconds_a_seed": statistics.fmean(seconds),
        "history": list(history),
        **provenance(conditions),
        "seeds": len(accuracies),
        "seeds_asked": conditions.seeds,
    }
