"""tacit's private step, through the interface that everybody uses."""

import dataclasses
from collections.abc import Callable

import torch

from tacit.benchmarking.contenders import CLIP, LEARNING_RATE, NOISE_MULTIPLIER, Contender, DescribedStep, Step
from tacit.benchmarking.tasks import Task
from tacit.clipping import Flat
from tacit.plan import DPSGD
from tacit.training import Execution, Private

_STEPS = 10**7  # more than a benchmark takes; nothing is calibrated for them
_DELTA = 1e-9
COMPILED = "tacit"


class PrivateStep(DescribedStep):
    """A step of `tacit.Private` on lots of exactly one batch, drawn from records on the device, noise included.

    A lean task is worked on in one chunk. Where `tacit.Private` had to halve it, the batch did not fit.
    """

    def __init__(self, task: Task, execution: Execution) -> None:
        model = task.private_model()
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        plan = DPSGD(
            expected_batch_size=task.size.batch,
            examples=len(task.records[0]),
            steps=_STEPS,
            clipping=Flat(CLIP),
            noise_multiplier=NOISE_MULTIPLIER,
            delta=_DELTA,
            sampler="fixed-size",
        )
        if task.lean:
            execution = dataclasses.replace(execution, chunk_size=task.size.batch)
        optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE)
        self._private = Private(model, task.losses, optimizer, plan, execution=execution)
        self._lots = self._private.batches(task.records)
        self._must_say = f"; {task.size.batch} examples at once" if task.lean else ""

    def __call__(self) -> None:
        self._private.step(next(self._lots))
        if self._must_say and self._must_say not in self._private.engine:
            raise torch.OutOfMemoryError(f"the batch did not fit in one chunk: {self._private.engine}")

    def describe(self) -> str:
        """The engine in use, whether its step is compiled and in what time, and how many examples run at once."""
        seconds = self._private.compile_seconds
        return f"{self._private.engine}; compiled in {seconds:.0f} s" if seconds else self._private.engine


def private_step(execution: Execution) -> Callable[[Task], Step]:
    """Builds a `PrivateStep` with this execution."""
    return lambda task: PrivateStep(task, execution)


CONTENDERS = (
    Contender(COMPILED, private_step(Execution(compile=True))),  # what a long run settles on by itself, waited for
    Contender("tacit-eager", private_step(Execution(compile=False)), patient=True),
    Contender("tacit-functional", private_step(Execution(engine="functional", compile=False)), patient=True),
)
