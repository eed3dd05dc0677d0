r"""Linear teachers on public features, fitted together through the inner products of their records.

A teacher of PATE has few records and, on good features, many numbers to learn: 240 of 3,969 on MNIST. Gradient descent
from zero never leaves the span of the records, so that it may as well run on one coefficient for each record and class:
a step then costs records² instead of records x features, and the features are touched twice in all.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_non_negative
from tacit.datasets import Split
from tacit.pate.partition import Indices
from tacit.training.ensemble import Progress
from tacit.training.threads import threads_for

CONSTANT_FEATURE = 0.1**0.5  # carries the offset, beside records of mean squared length 1
_NO_LENGTH = 1e-6  # relative to the mean: records that differ by rounding alone are equal
_MOST_RECORDS = 8192  # of a part: inner products take 4 records² bytes
_MULTIPLE = 32
_ROWS_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True)
class LinearFitting:
    """How linear teachers are fitted: the same for all, whatever their parts.

    Attributes:
        steps: of accelerated gradient descent on all records of a part.
        ridge: the penalty, relative to the mean squared length of the centred records.
        at_once: how many teachers are fitted together; memory grows with it.
    """

    steps: int = 200
    ridge: float = 1e-5
    at_once: int = 8

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_non_negative("ridge", self.ridge)
        check_count("at_once", self.at_once)


class LinearTeachers:
    r"""Softmax regressions, one for each part.

    A teacher with records :math:`x_i`, their mean :math:`\mu` and :math:`s^2 = \frac1n \sum_i \|x_i - \mu\|^2` takes
    :math:`z_i = ((x_i - \mu) / s, \sqrt{0.1})` and minimises, from zero,

    .. math:: \frac1n \sum_i \ell(W z_i, y_i) + \frac{\text{ridge}}{2} \|W\|^2

    with the cross-entropy :math:`\ell` by Nesterov's descent, momentum :math:`t / (t + 3)`. The step is one over
    :math:`\lambda / 2n + \text{ridge}`, where :math:`\lambda` is the Schatten 4-norm of the matrix of inner products
    and bounds its largest eigenvalue: the descent cannot diverge.

    No randomness: a teacher is a function of its own part, and of nothing else but rounding. Everything that teachers
    say is private until noise was added.

    Edge cases: a class that is missing in a part keeps its place in the vote; a teacher whose records are all equal
    says what most of them are; a teacher with a number that is not finite is in ``excluded`` and never votes.

    Attributes:
        weights: ``[teachers, classes, features]``; private.
        offsets: ``[teachers, classes]``; private.
        excluded: the numbers of the teachers that never vote, which is decided before the first question.
    """

    def __init__(self, weights: Tensor, offsets: Tensor) -> None:
        finite = weights.isfinite().flatten(1).all(1) & offsets.isfinite().all(1)
        self.weights, self.offsets = weights[finite], offsets[finite]
        self.excluded = tuple(torch.nonzero(~finite).flatten().tolist())

    @classmethod
    def train(
        cls,
        records: Split,
        classes: int,
        parts: Sequence[Indices],
        fitting: LinearFitting | None = None,
        progress: Progress | None = None,
    ) -> "LinearTeachers":
        """Fits one teacher to each part.

        Args:
            records: the private records, features as inputs, on the device to fit on.
            classes: how many there are, those included that no part holds.
            parts: disjoint row numbers, from `partition`.
            fitting: how.
            progress: is told the share that is done.
        """
        check_count("classes", classes)
        _check_parts(parts)
        how = fitting or LinearFitting()
        inputs = records.inputs.flatten(1)
        weights = inputs.new_empty(len(parts), classes, inputs.shape[1])
        offsets = inputs.new_empty(len(parts), classes)
        done = 0
        for group in _groups(parts, how.at_once):
            rows, mask = (values.to(inputs.device) for values in _padded([parts[number] for number in group]))
            targets = F.one_hot(records.targets[rows], classes).to(inputs.dtype)
            step = nn.Linear(rows.shape[1], classes, device="meta")  # what one step of a teacher multiplies by
            with threads_for(step, rows.shape[1], copies=len(group)):
                weights[group], offsets[group] = _fit(inputs[rows], targets, mask.to(inputs.dtype), how)
            done += len(group)
            if progress is not None:
                progress(done / len(parts))
        return cls(weights, offsets)

    @property
    def count(self) -> int:
        """How many teachers vote."""
        return len(self.weights)

    @torch.no_grad()
    def predictions(self, inputs: Tensor) -> npt.NDArray[np.int64]:
        """``[teachers, queries]``: the vote of every teacher that is not excluded."""
        teachers, classes, _ = self.weights.shape
        together = self.weights.flatten(0, 1).T
        said = [
            torch.addmm(self.offsets.flatten(), rows, together).view(-1, teachers, classes).argmax(2)
            for rows in torch.split(inputs.flatten(1), _ROWS_AT_ONCE)
        ]
        return torch.cat(said).T.cpu().numpy()


@torch.no_grad()
def _fit(rows: Tensor, targets: Tensor, mask: Tensor, how: LinearFitting) -> tuple[Tensor, Tensor]:
    """Weights and offsets from ``[teachers, records, …]``, where the mask is zero on what only fills up."""
    count, here = mask.sum(1)[:, None, None], mask[:, :, None]
    mean = (rows * here).sum(1, keepdim=True) / count
    centred = (rows - mean) * here
    length = (centred.square().sum((1, 2), keepdim=True) / count).sqrt()
    length = torch.where(length > _NO_LENGTH * mean.norm(dim=2, keepdim=True), length, torch.inf)
    centred /= length
    products = centred @ centred.mT + CONSTANT_FEATURE**2 * here * here.mT
    largest = (products @ products).square().sum((1, 2), keepdim=True).pow(0.25)
    step = 1 / (largest / (2 * count) + how.ridge)
    before = ahead = torch.zeros_like(targets)
    for turn in range(how.steps):
        slope = (torch.softmax(products @ ahead, 2) - targets) * here / count + how.ridge * ahead
        after = ahead - step * slope
        ahead = after + turn / (turn + 3) * (after - before)
        before = after
    weights = before.mT @ centred / length
    return weights, CONSTANT_FEATURE**2 * before.sum(1) - (weights @ mean.mT).squeeze(2)


def _check_parts(parts: Sequence[Indices]) -> None:
    if not parts or any(len(part) == 0 for part in parts):
        raise InputError("parts: every teacher needs a record. Train fewer teachers.")
    most = max(len(part) for part in parts)
    if most > _MOST_RECORDS:
        raise InputError(
            f"parts: a teacher has {most} records, must be at most {_MOST_RECORDS}, since memory grows with their "
            "square. Train more teachers, or networks."
        )


def _groups(parts: Sequence[Indices], at_once: int) -> Iterator[list[int]]:
    """Teachers to fit together. They fill up to one size, which each has by its own part alone."""
    by_size: dict[int, list[int]] = {}
    for number, part in enumerate(parts):
        by_size.setdefault(-(-len(part) // _MULTIPLE), []).append(number)
    for numbers in by_size.values():
        for first in range(0, len(numbers), at_once):
            yield numbers[first : first + at_once]


def _padded(parts: Sequence[Indices]) -> tuple[Tensor, Tensor]:
    """Row numbers ``[teachers, records]``, filled up with the first row of each, and what is no filling."""
    size = -(-max(len(part) for part in parts) // _MULTIPLE) * _MULTIPLE
    rows = np.stack([np.append(part, np.full(size - len(part), part[0])) for part in parts])
    mask = np.arange(size) < np.array([[len(part)] for part in parts])
    return torch.from_numpy(rows), torch.from_numpy(mask)
