"""The whole of PATE on a data set: voters on its training split, questions from its test split, a student."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from tacit.accounting.pate import PrivateEpsilon, ReleasedEpsilon
from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_open_unit
from tacit.datasets import DataSet, Split, with_features
from tacit.ledger import unlimited
from tacit.models import PublicMap
from tacit.pate.account import data_dependent_epsilon, data_independent_epsilon
from tacit.pate.answering import Answers, Round, Terms
from tacit.pate.interactive import converse, lesson_of
from tacit.pate.paying import check_terms, terms_for
from tacit.pate.plan import Pate
from tacit.pate.public_features import PublicFeatures
from tacit.pate.publishing import Publication
from tacit.pate.rounds import take_turns
from tacit.pate.students import Lesson
from tacit.pate.students.student import part_of
from tacit.pate.voters import Classroom, Poll, Pollster
from tacit.training.ensemble import seeded
from tacit.training.evaluation import evaluate
from tacit.training.preparation import prepared

_INPUTS_A_DIRECTION = 6  # of public inputs: fewer would make directions of chance
_CURVE_POINTS = 20
_MANY = 5000  # examples of a test split, of which a tenth is enough to test a student
Progress = Callable[[str, float], None]
"""Told what goes on, and the share of it that is done."""
STAGES = ("features", "votes", "student")


@dataclasses.dataclass(frozen=True)
class PateResult:
    """What came out.

    Attributes:
        model: the student, all that leaves the building.
        student_accuracy: on the part of the test split that was not public.
        aggregator_accuracy: of the noisy answers, on what was answered.
        epsilon: that depends on the votes; private. None where the aggregator has no such account.
        epsilon_data_independent: at most, whatever the votes, as if all questions had been answered; with
            ``epsilon_released`` its cost too.
        epsilon_released: for these votes, with noise, so that it may be published; None where nobody asked for it.
        neighbours: for which relation.
        rounds: what was asked and answered, all questions alike in one.
        poll: the votes; private.
        truth: labels of the public inputs, which nobody has in earnest: for figures alone.
        student_curve: steps, and the student's accuracy on the same examples after them.
        seconds: in all.
    """

    model: nn.Module
    student_accuracy: float
    aggregator_accuracy: float
    epsilon: PrivateEpsilon | None
    epsilon_data_independent: float
    epsilon_released: ReleasedEpsilon | None
    delta: float
    neighbours: Neighbours
    rounds: tuple[Round, ...]
    poll: Poll
    truth: npt.NDArray[np.int64]
    student_curve: tuple[tuple[int, float], ...]
    seconds: float

    @property
    def answers(self) -> Answers:
        """What teachers answered in all rounds."""
        return Answers.joined([one.answers for one in self.rounds])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values for the owner of the data; what costs privacy if it is told stands under ``private``."""
        private = self.epsilon is not None
        return {
            "student_accuracy": self.student_accuracy,
            "aggregator_accuracy": self.aggregator_accuracy,
            "epsilon": self.epsilon_data_independent if self.epsilon is None else self.epsilon.unsafe_value,
            "epsilon_is_private": private,
            "epsilon_data_independent": self.epsilon_data_independent,
            "epsilon_released": None if self.epsilon_released is None else self.epsilon_released.epsilon,
            "epsilon_released_failure": None if self.epsilon_released is None else self.epsilon_released.failure,
            "delta": self.delta,
            "neighbours": self.neighbours.value,
            "queries": len(self.answers.asked),
            "answered": len(self.answers.rows),
            "out_of_budget": self.answers.out_of_budget,
            "excluded_teachers": list(self.poll.unsafe_excluded),
            "seconds": self.seconds,
            "private": [*(["epsilon"] if private else []), "excluded_teachers"],
        }


def run_pate(
    data: DataSet, pate: Pate, randomness: Randomness, *, terms: Terms | None = None, progress: Progress | None = None
) -> PateResult:
    """Lets voters learn from the training split, asks them, teaches a student and tests it.

    Args:
        data: a classification; its test split holds the public inputs.
        pate: what is done.
        randomness: of samples and noise.
        terms: who pays, and under which relation; the voters' own relation by default.
        progress: is told what goes on.

    Raises:
        InputError: a relation under which one person would move more than one vote, among others.
        BudgetExceededError: not even one question fits.
    """
    started = time.perf_counter()
    tell = progress or (lambda _doing, _share: None)
    terms = terms or terms_for(pate)
    publication = Publication.planned(pate.asking, pate.delta) if pate.publish_epsilon else None
    check_terms(terms, pate, publication)
    public, test, room, see = _prepared(data, pate, tell)
    ask = pate.voters.gather(room, seed=pate.seed, progress=lambda share: tell("votes", share))
    curve = _Curve(pate, test, lambda share: tell("student", share))
    with unlimited(1) if publication is None else publication.reserved(terms) as reservation:
        poll, rounds, lesson = _questioned(pate, room, ask, curve, randomness, terms)
        released = (
            None
            if publication is None
            else publication.epsilon(poll.unsafe_votes, rounds, pate.delta, randomness, reservation)
        )
    curve.follow_ensemble(lesson, see)
    truth, answers = public.targets.cpu().numpy(), Answers.joined([one.answers for one in rounds])
    return PateResult(
        model=curve.model,
        student_accuracy=evaluate(curve.model, test, "classification"),
        aggregator_accuracy=float(np.mean(answers.labels == truth[answers.rows])),
        epsilon=data_dependent_epsilon(poll.unsafe_votes, rounds, pate.delta),
        epsilon_data_independent=min(
            terms.most(pate.delta),
            data_independent_epsilon(
                rounds,
                pate.delta,
                terms.neighbours,
                published=None if publication is None else publication.event,
            ),
        ),
        epsilon_released=released,
        delta=pate.delta,
        neighbours=terms.neighbours,
        rounds=rounds,
        poll=poll,
        truth=truth,
        student_curve=tuple(curve.points),
        seconds=time.perf_counter() - started,
    )


def _questioned(
    pate: Pate, room: Classroom, ask: Pollster, curve: "_Curve", randomness: Randomness, terms: Terms
) -> tuple[Poll, tuple[Round, ...], Lesson]:
    """The votes, what was asked and answered while a student learned, and its last lesson."""
    if pate.interaction is None:
        poll, answers, lesson = take_turns(
            pate, room, ask, curve.model, randomness, terms=terms, progress=curve.progress
        )
        return poll, (Round(pate.aggregator, answers),), lesson
    poll = ask(room, range(len(room.questions)), randomness)
    talk = converse(
        poll.unsafe_votes,
        room.questions,
        room.question_features,
        curve.build,
        pate.student,
        pate.interaction,
        randomness,
        seed=pate.seed,
        terms=terms,
        progress=curve.progress,
    )
    return poll, talk.rounds, lesson_of(talk.rounds, room.questions, room.question_features)


def _prepared(data: DataSet, pate: Pate, tell: Progress) -> tuple[Split, Split, Classroom, PublicMap]:
    """The public inputs, the test examples, what voters see, and the map from inputs to features."""
    public, test = _divided(data.test, pate)
    tell("features", 0.0)
    mapped = _mapped(data, pate.fixed)
    questions = _divided(mapped.test, pate)[0].inputs
    directions = max(1, min(pate.directions, len(questions) // _INPUTS_A_DIRECTION))
    features = PublicFeatures.learn(questions, directions=directions, whitening=pate.whitening)
    tell("features", 0.5)
    room = Classroom(
        records=data.train,
        features=features(mapped.train.inputs),
        questions=public.inputs,
        question_features=features(questions),
        classes=data.classes,
    )
    tell("features", 1.0)
    return public, test, room, features.after(pate.fixed)


def _mapped(data: DataSet, fixed: nn.Module | None) -> DataSet:
    """The data through the fixed map. A CPU keeps features on disk; other devices make them in less time."""
    if fixed is None:
        return data
    return with_features(data, fixed) if data.train.inputs.device.type == "cpu" else prepared(data, fixed)


class _Curve:
    """The student's accuracy now and then, while it learns."""

    def __init__(self, pate: Pate, test: Split, tell: Callable[[float], None]) -> None:
        self._pate, self._test, self._steps = pate, test, 0
        self._parts = 1 if pate.ensemble is None else 2
        self._tell = tell
        self.model = self.build()
        self.points: list[tuple[int, float]] = []

    def build(self) -> nn.Module:
        """A new student, to be followed from here on."""
        self.model = seeded(self._pate.build_student, self._pate.seed)
        return self.model

    def progress(self, share: float) -> None:
        """Counts a step, and tests where a further part of the way is done."""
        self._steps += 1
        if share * _CURVE_POINTS >= len(self.points) + 1:
            self.points.append((self._steps, evaluate(self.model, self._test, "classification")))
        part_of(self._tell, 0, self._parts)(share)

    def follow_ensemble(self, lesson: Lesson, see: PublicMap) -> None:
        """Lets the ensemble learn after the student, and takes it in its place; nothing where there is none."""
        if self._pate.ensemble is None:
            return
        tell = part_of(self._tell, 1, self._parts)

        def progress(share: float) -> None:
            self._steps += 1
            tell(share)

        build, seed = self._pate.build_student, self._pate.seed
        self.model = self._pate.ensemble.taught(self.model, lesson, build=build, see=see, seed=seed, progress=progress)
        self.points.append((self._steps, evaluate(self.model, self._test, "classification")))


def _divided(split: Split, pate: Pate) -> tuple[Split, Split]:
    """The public inputs, and those to test on."""
    share = pate.public_share
    if share is None:
        share = 0.9 if len(split) >= _MANY else 0.5
    count = round(check_open_unit("public_share", share) * len(split))
    if not 0 < count < len(split):
        raise InputError(f"public_share={share}: leaves {count} of {len(split)} test examples public. Take another.")
    if pate.public == "first":
        return Split(*split[:count]), Split(*split[count:])
    return Split(*split[-count:]), Split(*split[:-count])
