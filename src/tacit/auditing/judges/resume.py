"""Does a run that was cut short and goes on draw the same noise for two different sums?"""

import contextlib
import tempfile
from pathlib import Path

import numpy as np
from torch import nn

from tacit.auditing.judges.subject import Subject
from tacit.auditing.judges.verdict import Evidence, Numbers, Verdict, alike_p_values
from tacit.auditing.watching import Records, gradients, still
from tacit.core.errors import TacitError
from tacit.plan import DPSGD
from tacit.training import Checkpoint, TrainingInterrupted, fit

_STEPS, _EVERY = 6, 2
_CUT = 3  # after this step, so that one step is done again after a crash


_Noise = dict[int, Numbers]
"""By the number of steps done."""


class _CrashError(Exception):
    """Stands for the death of a process."""


def judge_resume(subject: Subject) -> Verdict:
    """Accuses a resumed run that draws noise again for another sum.

    A run is cut after a few steps and resumed from its checkpoint, three times: after a stop in order, after a crash,
    and after a crash with one record fewer. Resumption may refuse; it may replay a step, noise and all, on the very
    same sum; and it may draw afresh. Whoever sees one noise on two sums can subtract it.
    """
    added = subject.contributions()
    everyone, fewer = (subject.records, added), (tuple(column[1:] for column in subject.records), added[1:])
    evidence = Evidence()
    for what, cut, later in (
        ("a stop", KeyboardInterrupt, everyone),
        ("a crash", _CrashError, everyone),
        ("a crash and with other data", _CrashError, fewer),
    ):
        first: _Noise = {}
        second: _Noise = {}
        with tempfile.TemporaryDirectory() as folder:
            with contextlib.suppress(_CrashError, TrainingInterrupted):
                _run(subject, *everyone, Path(folder), first, cut)
            with contextlib.suppress(TacitError):
                _run(subject, *later, Path(folder), second)
        _add_repeats(evidence, f"after {what}", first, second, may_replay=later is everyone)
    return evidence.verdict("resume")


def _add_repeats(evidence: Evidence, what: str, first: _Noise, second: _Noise, *, may_replay: bool) -> None:
    for step, noise in second.items():
        others = [value for other, value in first.items() if other != step or not may_replay]
        if others:
            found = float(alike_p_values(noise[None], np.stack(others)).min())
            evidence.add(f"{what}: the likeness of step {step}'s noise to one before", found, len(others))
    if not second:
        evidence.add(f"{what}: resumption was refused", 1.0)


def _run(
    subject: Subject,
    records: Records,
    added: Numbers,
    folder: Path,
    noise: _Noise,
    cut: type[BaseException] | None = None,
) -> None:
    """Takes the steps that remain, writes down the noise of each, and is cut short where asked to.

    Everyone takes part in every step, so that the noise is what was released, less what all records add.
    """
    plan = subject.plan
    everyone = DPSGD(
        expected_batch_size=plan.expected_batch_size,
        examples=plan.expected_batch_size,
        steps=_STEPS,
        clipping=plan.clipping,
        delta=plan.delta,
        noise_multiplier=plan.noise_multiplier,
    )

    def look(step: int, model: nn.Module) -> None:
        noise[step] = plan.expected_batch_size * gradients(model) - added.sum(0)
        if cut is not None and step == _CUT:
            raise cut

    model = subject.model()
    fit(
        model,
        subject.loss_fn,
        records,
        everyone,
        optimizer=still(model),
        execution=subject.execution,
        callbacks=[look],
        checkpoint=Checkpoint(folder / "run", every=_EVERY, resume=True),
    )
