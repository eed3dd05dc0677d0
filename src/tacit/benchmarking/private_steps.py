"""tacit's private step, through the interface that everybody uses."""

import dataclasses
from collections.abc import Callable

import torch

from tacit.benchmarking.contenders import CLIP, LEARNING_RATE, NOISE_MULTIPLIER, Contender, Step
from tacit.benchmarking.tasks import Task
from tacit.clipping import Flat
from tacit.plan import DPSGD
from tacit.training import Execution, Private

_STEPS = 10**7  # more than a benchmark takes; nothing is calibrated for them
_DELTA = 1e-9


def default_execution(_: Task) -> Execution:
    """The compiled step, which a long run comes to by itself."""
    return Execution(compile=True)


def eager_execution(_: Task) -> Execution:
    """Book-keeping without compilation."""
    return Execution(engine="bookkeeping", compile=False)


def functional_execution(_: Task) -> Execution:
    """vmap of grad."""
    return Execution(engine="functional")


def private_step(execution_for: Callable[[Task], Execution]) -> Callable[[Task], Step]:
    """A step of `tacit.Private` on lots of exactly one batch, drawn from records on the device, noise included."""

    def prepare(task: Task) -> Step:
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
        optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE)
        execution = execution_for(task)
        if task.lean:
            execution = dataclasses.replace(execution, chunk_size=task.size.batch)
        private = Private(model, task.losses, optimizer, plan, execution=execution)
        lots = private.batches(task.records)
        return lambda: private.step(next(lots))

    return prepare


CONTENDERS = (
    Contender("tacit", private_step(default_execution)),
    Contender("tacit-eager", private_step(eager_execution)),
    Contender("tacit-functional", private_step(functional_execution)),
)
