"""`fit`: a whole private run."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from tacit.core.privacy import Statement
from tacit.core.randomness import Randomness
from tacit.gradients.losses import LossFunction
from tacit.ledger import Account
from tacit.plan import DPSGD
from tacit.training.averaging import WeightAverage
from tacit.training.execution import Execution
from tacit.training.private import Private

Callback = Callable[[int, nn.Module], None]
"""Called after every step with the number of steps done and the model."""


@dataclasses.dataclass(frozen=True)
class FitResult:
    """What a run left behind. Everything here may be released with the statement.

    Attributes:
        model: the trained model, with averaged weights where averaging was asked for.
        statement: the guarantee for the steps whose noise was drawn.
        steps: how many that were; after Ctrl-C in the middle of a step it counts, though its update is missing.
        engine: which engine computed the gradients, and why.
    """

    model: nn.Module
    statement: Statement
    steps: int
    engine: str


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C during `fit`. The ledger holds what was spent; ``result`` is the model as it was."""

    def __init__(self, result: FitResult) -> None:
        super().__init__(f"interrupted after {result.steps} steps")
        self.result = result


def fit(
    model: nn.Module,
    loss_fn: LossFunction,
    train_set: Any,
    plan: DPSGD,
    *,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
    average_decay: float | None = None,
    account: Account | None = None,
    run: str = "",
    randomness: Randomness | None = None,
    execution: Execution | None = None,
    callbacks: Sequence[Callback] = (),
) -> FitResult:
    """Trains ``model`` in place by the plan and returns it with its statement.

    Args:
        model, loss_fn, optimizer: the user's own, see `clipped_grad` for the loss.
        train_set: a data set with ``__len__`` and ``__getitem__``, or a tuple of tensors. Never a loader: the plan's
            sampler chooses the batches.
        plan: what the guarantee depends on.
        scheduler: a learning-rate schedule, stepped after every step.
        average_decay: keeps an exponential moving average of the weights and returns it as the model's.
        account, run, randomness, execution: see `Private`.
        callbacks: called after each step. What they see of the model is private output and may be published; what they
            compute from training data may not.

    Raises:
        BudgetExceededError: the account does not hold the plan; nothing was spent.
        TrainingInterrupted: Ctrl-C; what was spent is in the ledger, and the error carries the model so far.
    """
    average = None if average_decay is None else WeightAverage(model, average_decay)
    private = Private(
        model, loss_fn, optimizer, plan, account=account, run=run, randomness=randomness, execution=execution
    )
    with private:
        try:
            for lot in private.batches(train_set):
                private.step(lot)
                if scheduler is not None:
                    scheduler.step()
                if average is not None:
                    average.update(model)
                for callback in callbacks:
                    callback(private.steps_done, model)
        except KeyboardInterrupt:
            raise TrainingInterrupted(_result(private, average)) from None
    return _result(private, average)


def _result(private: Private, average: WeightAverage | None) -> FitResult:
    if average is not None:
        average.copy_to(private.model)
    return FitResult(private.model, private.statement(), private.steps_begun, private.engine)
