r"""Microbatches: the mean gradient of a few records is bounded, instead of the gradient of each.

The records are cut into groups of m once and for all, before anything is sampled, and a group is what a plan calls an
example: it is drawn, or not, as a whole. That saves memory and costs privacy. Replacing one record changes the mean
gradient of its group to anything else, so the bounded sum moves by up to 2C, from one end of a diameter to the other:
for the tanh filter alone by :math:`2 c \sqrt n`. That is one example replaced, which the replace-one relation accounts
for, at the sampling rate of the groups.

The other relations are refused. A record that comes or goes moves every later record into another group, so that the
sum changes without bound. And groups that are cut from a lot after it was drawn, as is common, are not what is known of
amplification by sampling, even under replace-one: whether one record was drawn decides how all others are grouped.
"""

from typing import Any

from torch import Tensor, nn

from tacit.core.errors import InputError, UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.core.validation import check_count
from tacit.datasets import Split
from tacit.gradients.batches import map_leaves
from tacit.gradients.losses import LossFunction, losses_of


def in_microbatches(split: Split, size: int, neighbours: Neighbours) -> Split:
    """The records in groups of ``size``, in their order: ``[groups, size, …]``; what is left over is not used.

    Args:
        split: the records.
        size: m, how many records a group has.
        neighbours: the relation of the plan that will train on the groups; only replace-one has a guarantee for one
            record.

    Raises:
        UnsupportedError: the plan is for another relation.
    """
    if neighbours is not Neighbours.REPLACE_ONE:
        raise UnsupportedError(
            f"neighbours={neighbours.value}: in microbatches a record can only be replaced, since one that comes or "
            "goes changes all groups after it. Use neighbours=Neighbours.REPLACE_ONE, or no microbatches."
        )
    groups = len(split) // check_count("size", size)
    if groups == 0:
        raise InputError(f"size={size}: must be at most the {len(split)} records. Take smaller microbatches.")
    inputs, targets = (
        column[: groups * size].reshape(groups, size, *column.shape[1:]) for column in (split.inputs, split.targets)
    )
    return Split(inputs, targets)


def mean_over_microbatches(loss_fn: LossFunction) -> LossFunction:
    """From a loss for each record to one for each group: the mean, whose gradient is the mean gradient."""

    def loss(model: nn.Module, *batch: Any) -> Tensor:
        shapes: set[tuple[int, ...]] = set()

        def join(leaf: Tensor) -> Tensor:
            shapes.add(tuple(leaf.shape[:2]))
            return leaf.flatten(0, 1)

        records = map_leaves(join, batch)
        if len(shapes) != 1:
            raise InputError(f"batch: its tensors begin with {sorted(shapes)}. All must be [groups, size, …].")
        groups, size = shapes.pop()
        return losses_of(loss_fn, model, records, groups * size).reshape(groups, size).mean(1)

    return loss
