"""Does one record move the sum by no more than the noise was made for?"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from tacit.auditing.judges.subject import Subject
from tacit.auditing.judges.verdict import Numbers, Verdict
from tacit.auditing.watching import Records, gradients
from tacit.core.errors import TacitError
from tacit.plan import DPSGD

_ROUNDING = 1e-4  # of the bound, for sums in float32
_HUGE = 1e4
_TRIED = 3  # records that are made extreme

Pair = tuple[str, Records, Records]
"""What differs, and two data sets of which one has one record more."""


def judge_sensitivity(subject: Subject, pairs: Iterable[Pair] = ()) -> Verdict:
    r"""Accuses a step whose sums on two neighbouring data sets lie further apart than the clipping promises.

    Neighbours differ by one record. Both go through the same private step with its noise switched off, all records
    taking part, and :math:`\|f(D) - f(D')\|_2 \le \Delta` must hold for what would have been released, times the
    plan's divisor. There is no chance in it: a step that is accused has a record that proves it. One that is not
    accused may still have one that was not tried.

    Tried are all records of the subject, each with and without the others, and a few of them made extreme: all zeros
    (biases alone get a gradient), very large, not finite, all entries equal (words that repeat). A step that fails, or
    that releases what is not finite, is accused too: that it does tells the record.

    Args:
        subject: what is judged.
        pairs: further neighbours that a worst case is known for.
    """
    tried = [*_neighbours(subject.records), *pairs]
    step = _NoiselessStep(subject, 2 * len(tried))
    bound, worst, which = subject.sensitivity(), 0.0, "no pair"
    for what, data, without in tried:
        try:
            distance = float(np.linalg.norm(step(data) - step(without)))
        except TacitError as error:
            return Verdict("sensitivity", accused=True, finding=f"{what}: the step fails ({error})")
        if not np.isfinite(distance):
            return Verdict("sensitivity", accused=True, finding=f"{what}: the sum is not finite")
        if distance > worst:
            worst, which = distance, what
    finding = f"{which}: the sum moves by {worst / bound:.6g} of what the noise is made for"
    return Verdict("sensitivity", worst > bound * (1 + _ROUNDING), finding)


class _NoiselessStep:
    """What one step on all records of a data set would release without noise, times the divisor.

    All data sets are steps of one run, which is checked once.
    """

    def __init__(self, subject: Subject, steps: int) -> None:
        plan = subject.plan
        self._divisor = plan.expected_batch_size
        everyone = DPSGD(
            expected_batch_size=self._divisor,
            examples=self._divisor,
            steps=steps,
            clipping=plan.clipping,
            delta=plan.delta,
            noise_multiplier=0,
            unsafe_no_noise=True,
        )
        self._private = subject.private(subject.model(), plan=everyone)

    def __call__(self, records: Records) -> Numbers:
        self._private.step(next(self._private.batches(records)))
        return self._divisor * gradients(self._private.model)


def _neighbours(records: Records) -> Iterator[Pair]:
    nobody = tuple(column[:0] for column in records)
    for i in range(len(records[0])):
        alone = tuple(column[i : i + 1] for column in records)
        others = tuple(torch.cat([column[:i], column[i + 1 :]]) for column in records)
        yield f"record {i} among the others", records, others
        if i < _TRIED:
            yield f"record {i} alone", alone, nobody
            for kind, extreme in _extremes(alone):
                yield f"record {i}, {kind}", _joined(extreme, others), others
                yield f"record {i}, {kind}, alone", extreme, nobody


def _extremes(record: Records) -> Iterator[tuple[str, Records]]:
    """The record with another first column, which is taken for the model's input."""
    inputs, *rest = record
    if inputs.is_floating_point():
        changed: dict[str, Tensor] = {
            "all zeros": torch.zeros_like(inputs),
            "very large": inputs * _HUGE,
            "infinite": torch.full_like(inputs, torch.inf),
        }
    else:
        changed = {"all entries equal": inputs.flatten(1)[:, :1].expand(-1, inputs[0].numel()).reshape(inputs.shape)}
    for kind, value in changed.items():
        yield kind, (value, *rest)


def _joined(first: Records, second: Records) -> Records:
    return tuple(torch.cat(columns) for columns in zip(first, second, strict=True))
