"""The whole of PATE on a data set: teachers on its training split, questions from its test split, a student."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit.accounting import epsilon as event_epsilon
from tacit.accounting.pate import PrivateEpsilon, confident_gnmax_epsilon, gnmax_epsilon, lnmax_epsilon
from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count, check_open_unit
from tacit.datasets import DataSet, Split
from tacit.pate.aggregation import Aggregator, ConfidentGNMax, GNMax, LNMax
from tacit.pate.answering import Answers, Terms, ask, random_rows
from tacit.pate.partition import partition
from tacit.pate.students import Student
from tacit.pate.teachers import Teachers, TeacherTraining
from tacit.pate.votes import Votes, count_votes
from tacit.training.evaluation import evaluate
from tacit.training.threads import threads_for

_MOMENTS = 128  # beyond the eight that were published: few answers want high moments
_STUDENTS_BATCH = 500  # about, for the number of threads alone
_MANY = 5000  # examples of a test split, of which a tenth is enough to test a student
Progress = Callable[[str, float], None]
"""Told what goes on, and the share of it that is done."""


@dataclasses.dataclass(frozen=True)
class Pate:
    """What is done.

    Attributes:
        teachers: how many.
        queries: how many public inputs are asked for, in a random order.
        aggregator: how noisy answers are made.
        student: how the student learns.
        build_teacher, build_student: make their networks.
        training: of the teachers.
        public_share: of the test split, from its beginning, that is public and unlabelled; the rest tests the student.
            None is nine tenths where that leaves enough, else half.
        delta: of the guarantee.
        seed: of everything that is public: order, first weights.
    """

    teachers: int
    queries: int
    aggregator: Aggregator
    student: Student
    build_teacher: Callable[[], nn.Module]
    build_student: Callable[[], nn.Module]
    training: TeacherTraining = dataclasses.field(default_factory=TeacherTraining)
    public_share: float | None = None
    delta: float = 1e-5
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("teachers", self.teachers)
        check_count("queries", self.queries)
        check_open_unit("delta", self.delta)


@dataclasses.dataclass(frozen=True)
class PateResult:
    """What came out.

    Attributes:
        model: the student, all that leaves the building.
        student_accuracy: on the part of the test split that was not public.
        aggregator_accuracy: of the noisy answers, on what was answered.
        plurality_accuracy: of the votes without noise on all public inputs; private.
        epsilon: that depends on the votes; private.
        epsilon_data_independent: what the ledger counts, whatever the votes.
        answers: what was asked and answered.
        votes: of all public inputs; private.
        seconds: in all.
    """

    model: nn.Module
    student_accuracy: float
    aggregator_accuracy: float
    plurality_accuracy: float
    epsilon: PrivateEpsilon
    epsilon_data_independent: float
    answers: Answers
    votes: Votes
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; what depends on the votes without noise is named so."""
        return {
            "student_accuracy": self.student_accuracy,
            "aggregator_accuracy": self.aggregator_accuracy,
            "epsilon": self.epsilon.unsafe_value,
            "epsilon_is_private": True,
            "epsilon_data_independent": self.epsilon_data_independent,
            "delta": self.epsilon.delta,
            "neighbours": Neighbours.REPLACE_ONE.value,
            "queries": len(self.answers.asked),
            "answered": len(self.answers.rows),
            "out_of_budget": self.answers.out_of_budget,
            "seconds": self.seconds,
        }


def run_pate(
    data: DataSet, pate: Pate, randomness: Randomness, *, terms: Terms | None = None, progress: Progress | None = None
) -> PateResult:
    """Trains teachers on the training split, asks them, teaches a student and tests it.

    The guarantee is for one record under replace-one: rows of the training split are places that are dealt out.
    """
    started = time.perf_counter()
    tell = progress or (lambda _doing, _share: None)
    public, test = _divided(data.test, pate.public_share)
    parts = partition(len(data.train), pate.teachers, seed=pate.seed)
    teachers = Teachers.train(
        pate.build_teacher, data.train, parts, pate.training, lambda share: tell("teachers", share)
    )
    votes = count_votes(teachers.predictions(public.inputs), data.classes)
    terms = terms or Terms(neighbours=Neighbours.REPLACE_ONE)
    rows = random_rows(len(public), pate.queries, seed=pate.seed)
    answers = ask(votes, rows.tolist(), pate.aggregator, randomness, terms=terms)
    model = pate.build_student()
    answered = Split(public.inputs[answers.rows], torch.from_numpy(answers.labels).to(public.targets.device))
    with threads_for(model, _STUDENTS_BATCH):
        pate.student.teach(
            model, answered, public.inputs, seed=pate.seed, progress=lambda share: tell("student", share)
        )
    truth = public.targets.cpu().numpy()
    return PateResult(
        model=model,
        student_accuracy=evaluate(model, test, "classification"),
        aggregator_accuracy=float(np.mean(answers.labels == truth[answers.rows])),
        plurality_accuracy=float(np.mean(votes.argmax(1) == truth)),
        epsilon=data_dependent_epsilon(votes, answers, pate.aggregator, pate.delta),
        epsilon_data_independent=event_epsilon(
            answers.event(pate.aggregator, terms.neighbours), pate.delta, neighbours=terms.neighbours
        ),
        answers=answers,
        votes=votes,
        seconds=time.perf_counter() - started,
    )


def data_dependent_epsilon(votes: Votes, answers: Answers, aggregator: Aggregator, delta: float) -> PrivateEpsilon:
    """Epsilon of these answers where teachers agree as they do; private, since it tells how they agree."""
    asked = votes[answers.asked]
    if isinstance(aggregator, LNMax):
        return lnmax_epsilon(asked, aggregator.gamma, delta, np.arange(1, _MOMENTS + 1))
    if isinstance(aggregator, GNMax):
        return gnmax_epsilon(asked, aggregator.sigma, delta)
    if isinstance(aggregator, ConfidentGNMax):
        return confident_gnmax_epsilon(
            asked,
            np.isin(answers.asked, answers.rows),
            delta,
            threshold=aggregator.threshold,
            sigma1=aggregator.sigma_threshold,
            sigma2=aggregator.sigma,
        )
    raise InputError(f"aggregator={aggregator.name!r}: has no account that depends on the votes.")


def _divided(split: Split, share: float | None) -> tuple[Split, Split]:
    """The public inputs, and those to test on."""
    if share is None:
        share = 0.9 if len(split) >= _MANY else 0.5
    count = round(check_open_unit("public_share", share) * len(split))
    if not 0 < count < len(split):
        raise InputError(f"public_share={share}: leaves {count} of {len(split)} test examples public. Take another.")
    return Split(*split[:count]), Split(*split[count:])
