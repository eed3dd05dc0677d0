"""`prepare`: runs the preparations of a plan, in the order that the guarantee needs."""

import dataclasses

import torch
from dp_accounting import ComposedDpEvent, DpEvent
from torch import Tensor, nn

from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, Split
from tacit.datasets.blocks import in_blocks
from tacit.ledger import Account, Reservation, unlimited
from tacit.plan import DPSGD
from tacit.plan.preparation import Preparation

_CHUNK = 256  # records at once: what caches hold


def prepare(
    plan: DPSGD,
    inputs: Tensor,
    *,
    account: Account | None = None,
    run: str = "",
    randomness: Randomness | None = None,
) -> nn.Sequential:
    """Runs the plan's preparations on the training inputs and returns the public map that they amount to.

    Each preparation: the sum with bounded sensitivity, the ledger's durable record, noise, the map. The next one sees
    the inputs through the maps before it. Apply the result to training and test inputs alike (`apply`, `prepared`), or
    put it before the model. Calling it twice draws twice and is charged twice.

    Args:
        plan: its ``preparations`` are run; without any the map is the identity.
        inputs: all training inputs, one row a record.
        account: where the budget comes from. It must hold the whole plan before anything is drawn; the preparations are
            charged here, the training steps when they are taken.
        run: a name for the ledger's history.
        randomness: the source of the noise; keyed by the operating system unless given.

    Raises:
        BudgetExceededError: the account does not hold preparations and training together; nothing was spent.
    """
    transforms: list[nn.Module] = []
    if not plan.preparations:
        return nn.Sequential()
    source = (randomness or Randomness()).fork()
    with _reserve(plan, account, run) as reservation:
        for number, preparation in enumerate(plan.preparations):
            if transforms:
                inputs = apply(transforms[-1], inputs)
            transforms.append(_release(preparation, inputs, reservation, source, number))
    return nn.Sequential(*transforms)


@torch.no_grad()
def apply(transform: nn.Module, inputs: Tensor) -> Tensor:
    """The map on all inputs, in blocks and in evaluation mode; what becomes of one does not depend on their number."""
    return in_blocks(transform.eval(), inputs, _CHUNK)


def prepared(dataset: DataSet, transform: nn.Module) -> DataSet:
    """The data set with both splits seen through the map."""
    train, test = (Split(apply(transform, split.inputs), split.targets) for split in (dataset.train, dataset.test))
    return dataclasses.replace(dataset, train=train, test=test, input_shape=tuple(test.inputs.shape[1:]))


def _reserve(plan: DPSGD, account: Account | None, run: str) -> Reservation:
    events = [preparation.mechanism.event() for preparation in plan.preparations]

    def event_for(count: int) -> DpEvent:
        return events[0] if count == 1 else ComposedDpEvent(events[:count])

    if account is None:
        return unlimited(len(events))
    account.require(plan.event(), neighbours=plan.neighbours, unit=plan.unit)
    name = f"{run} (preparation)" if run else "preparation"
    return account.reserve(event_for, len(events), run=name, neighbours=plan.neighbours, unit=plan.unit)


def _release(
    preparation: Preparation, inputs: Tensor, reservation: Reservation, randomness: Randomness, number: int
) -> nn.Module:
    """One preparation; its noise comes from a stream that belongs to it alone."""
    statistic = preparation.statistic(inputs)
    preparation.mechanism.check_finite(statistic)
    reservation.before_noise(number)
    released = preparation.mechanism.add_noise(statistic, randomness.stream("preparation", number))
    return preparation.transform(released, tuple(inputs.shape[1:]))
