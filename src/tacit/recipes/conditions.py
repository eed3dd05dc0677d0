"""How recipes are run, apart from what they are, and who is told on the way."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from tacit.core.errors import InputError
from tacit.core.validation import check_count
from tacit.ledger import Account
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
        account: where the budget comes from; every model of every seed is charged by itself.
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
        if check_count("jobs", self.jobs) > 1 and self.account is not None:
            raise InputError(
                f"jobs={self.jobs}: models that an account pays for are trained one after another. Leave out jobs, or "
                "the ledger."
            )


def check_payable(conditions: Conditions, *, private: bool = True) -> None:
    """Refuses an account for figures that it cannot pay for: they would be released without noise."""
    if conditions.account is None:
        return
    if not private:
        raise InputError("account: no budget pays for training without noise. Leave it out, or take a private setting.")
    if conditions.held_out:
        raise InputError(
            "held_out: its accuracies are figures on private examples without noise, which no budget pays for. Leave "
            "out --held-out to measure on the test set, or choose with --private."
        )


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
