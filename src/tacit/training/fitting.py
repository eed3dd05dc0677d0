"""`fit`: a whole private run."""

import contextlib
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
from tacit.training.records import check_records
from tacit.training.resume import Checkpoint, Session
from tacit.training.run_header import Facts
from tacit.training.run_state import RunState

Callback = Callable[[int, nn.Module], None]
"""Called after every step with the number of steps done and the model."""


@dataclasses.dataclass(frozen=True)
class FitResult:
    """What a run left behind. Everything here may be released with the statement.

    Attributes:
        model: the trained model, with averaged weights where averaging was asked for.
        statement: the guarantee for the steps whose noise was drawn.
        stretches: how many that were; after Ctrl-C in the middle of a step it counts, though its update is missing.
            One number, unless steps were drawn again after a crash: each stretch then is a run of its own.
        engine: which engine computed the gradients, and why.
        compile_seconds: how long its step took to compile; 0 where no program came of it, so that all were eager.
    """

    model: nn.Module
    statement: Statement
    stretches: tuple[int, ...]
    engine: str
    compile_seconds: float

    @property
    def steps(self) -> int:
        """How many steps drew their noise, those that were drawn again counted again."""
        return sum(self.stretches)


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C during `fit`. The ledger holds what was spent; ``result`` is the model as it was."""

    def __init__(self, result: FitResult) -> None:
        super().__init__(f"interrupted after {result.steps} steps")
        self.result = result


def fit(  # noqa: PLR0913 - one for each thing that a run consists of
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
    checkpoint: Checkpoint | None = None,
    opened: Callable[[Private], None] | None = None,
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
        callbacks: called after each step with the model as it would be returned then, so with averaged weights where
            averaging was asked for. What they see of it is private output and may be published; what they compute from
            training data may not. Steps that are done again after a crash are shown again.
        checkpoint: where the run saves itself, and whether it goes on with what is there; see
            `tacit.training.resume`. The reservation of a run that stops early then stays open, and counts whole until
            the run is resumed and ends.
        opened: is given the run before it draws anything, to be asked for its statement however it ends.

    Raises:
        BudgetExceededError: the account does not hold the plan; nothing was spent.
        TrainingInterrupted: Ctrl-C; what was spent is in the ledger, and the error carries the model so far.
    """
    average = None if average_decay is None else WeightAverage(model, average_decay)
    execution = execution or Execution()
    session = None
    if checkpoint is not None:
        execution = _repeatable(execution, model)
        state = RunState(model, optimizer, scheduler, average)
        facts = Facts(state, plan, loss_fn, check_records(train_set), account, run, execution)
        session = Session(checkpoint, facts, randomness)
    with contextlib.nullcontext() if session is None else session:
        private = Private(
            model,
            loss_fn,
            optimizer,
            plan,
            account=account,
            run=run,
            randomness=randomness,
            execution=execution,
            position=None if session is None else session.begin,
        )
        if opened is not None:
            opened(private)
        with private:
            _loop(private, train_set, scheduler, average, callbacks, session)
    return _result(private, average)


def _loop(
    private: Private,
    train_set: Any,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None,
    average: WeightAverage | None,
    callbacks: Sequence[Callback],
    session: Session | None,
) -> None:
    try:
        for lot in private.batches(train_set):
            private.step(lot)
            if scheduler is not None:
                scheduler.step()
            if average is not None:
                average.update(private.model)
            show_model(callbacks, private.steps_done, private.model, average)
            if session is not None:
                session.after_step(private.steps_done)
        if session is not None:
            session.finish()
    except KeyboardInterrupt:
        if session is not None:
            session.stop()
        raise TrainingInterrupted(_result(private, average)) from None


def show_model(callbacks: Sequence[Callback], step: int, model: nn.Module, average: WeightAverage | None) -> None:
    """Calls them with the model, or with its averaged weights where there are any."""
    if not callbacks:
        return
    with contextlib.nullcontext() if average is None else average.shown_by(model):
        for callback in callbacks:
            callback(step, model)


def _repeatable(execution: Execution, model: nn.Module) -> Execution:
    """Without a compilation that comes whenever it is ready: it would change the last bits of a step done again."""
    on_cpu = next(model.parameters()).device.type == "cpu"
    return dataclasses.replace(execution, compile=False) if on_cpu and execution.compile is None else execution


def _result(private: Private, average: WeightAverage | None) -> FitResult:
    if average is not None:
        average.copy_to(private.model)
    return FitResult(private.model, private.statement(), private.stretches(), private.engine, private.compile_seconds)
