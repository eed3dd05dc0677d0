"""What is judged: a private step of somebody's own, run as it is and looked at from outside."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from tacit.auditing.judges.verdict import Numbers
from tacit.auditing.watching import Records, contributions, gradients, still
from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.gradients.losses import LossFunction, trainable
from tacit.plan import DPSGD
from tacit.training import Execution, Private


@dataclasses.dataclass(frozen=True)
class Subject:
    """A private training run, small enough to be watched closely: tens of records, and a few thousand numbers or more.

    Attributes:
        model: makes the model, the same each time.
        loss_fn: one loss for each example; it must not draw at random (no dropout, no augmentation), since judges
            subtract what each record adds.
        records: a tuple of tensors, one row a record. They are shown to nobody, but judges are told which were drawn.
        plan: what is promised.
        execution: how steps run; the promise must not depend on it. The preflight is off, since judges look for
            themselves.
    """

    model: Callable[[], nn.Module]
    loss_fn: LossFunction
    records: Records
    plan: DPSGD
    execution: Execution = Execution(preflight=False)  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        if not isinstance(self.records, tuple) or not self.records or not len(self.records[0]):
            raise InputError("records: must be a tuple of tensors with a row for each record, and at least one record.")

    def private(self, model: nn.Module, *, plan: DPSGD | None = None, randomness: Randomness | None = None) -> Private:
        """The run, with an update that leaves the weights where they are, so that all steps see the same gradients."""
        return Private(
            model,
            self.loss_fn,
            still(model),
            plan or self.plan,
            randomness=randomness,
            execution=self.execution,
        )

    def sensitivity(self) -> float:
        """How far one record may move the sum by what the clipping promises, when it comes or goes."""
        numbers = {name: parameter.numel() for name, parameter in trainable(self.model()).items()}
        return self.plan.clipping.bind(numbers).sensitivity(Neighbours.ADD_REMOVE)

    def contributions(self) -> Numbers:
        """What each record adds to the sum, ``[records, numbers]``."""
        return contributions(self.model(), self.loss_fn, self.plan.clipping, self.records)

    def parts(self) -> list[slice]:
        """Where each parameter's numbers lie in a flat vector."""
        ends = np.cumsum([0, *(parameter.numel() for parameter in trainable(self.model()).values())])
        return [slice(int(start), int(end)) for start, end in itertools.pairwise(ends)]


@dataclasses.dataclass(frozen=True)
class Observation:
    """One step: which records it drew, and the noisy sum that it released."""

    indices: npt.NDArray[np.int64]
    released: Numbers


def observe(private: Private, records: Any, divisor: float) -> Iterator[Observation]:
    """Takes all steps, and reads what each leaves in the gradients; times the divisor, that is the noisy sum."""
    for lot in private.batches(records):
        private.step(lot)
        yield Observation(lot.unsafe_indices, divisor * gradients(private.model))


def noise_of(subject: Subject, *, steps: int | None = None, randomness: Randomness | None = None) -> Numbers:
    """The noise of a run's first steps, ``[steps, numbers]``: what was released, less what the drawn records add."""
    added = subject.contributions()
    private = subject.private(subject.model(), randomness=randomness)
    seen = itertools.islice(observe(private, subject.records, subject.plan.expected_batch_size), steps)
    return np.stack([step.released - added[step.indices].sum(0) for step in seen])
