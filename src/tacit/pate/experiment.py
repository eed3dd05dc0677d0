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
from tacit.pate.account import (
    check_publishable,
    data_dependent_epsilon,
    data_independent_epsilon,
    published_epsilon,
)
from tacit.pate.answering import Answers, Terms
from tacit.pate.plan import Pate
from tacit.pate.public_features import PublicFeatures
from tacit.pate.rounds import take_turns
from tacit.pate.voters import Classroom, Poll, Voters
from tacit.training.evaluation import evaluate

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
        epsilon_data_independent: what the ledger counts, whatever the votes.
        epsilon_released: for these votes, with noise, so that it may be published; None where nobody asked for it.
        neighbours: for which relation.
        answers: what was asked and answered.
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
    answers: Answers
    poll: Poll
    truth: npt.NDArray[np.int64]
    student_curve: tuple[tuple[int, float], ...]
    seconds: float

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
    terms = terms or Terms(neighbours=pate.voters.relations[0])
    _check_relation(terms.neighbours, pate.voters)
    _check_publishing(pate, terms)
    public, test, room = _prepared(data, pate, tell)
    ask = pate.voters.gather(room, seed=pate.seed, progress=lambda share: tell("votes", share))
    model = pate.build_student()
    curve = _Curve(model, test, lambda share: tell("student", share))
    poll, answers = take_turns(pate, room, ask, model, randomness, terms=terms, progress=curve.progress)
    truth = public.targets.cpu().numpy()
    return PateResult(
        model=model,
        student_accuracy=evaluate(model, test, "classification"),
        aggregator_accuracy=float(np.mean(answers.labels == truth[answers.rows])),
        epsilon=data_dependent_epsilon(poll.unsafe_votes, answers, pate.aggregator, pate.delta),
        epsilon_data_independent=data_independent_epsilon(answers, pate.aggregator, pate.delta, terms.neighbours),
        epsilon_released=published_epsilon(poll.unsafe_votes, answers, pate.aggregator, pate.delta, randomness)
        if pate.publish_epsilon
        else None,
        delta=pate.delta,
        neighbours=terms.neighbours,
        answers=answers,
        poll=poll,
        truth=truth,
        student_curve=tuple(curve.points),
        seconds=time.perf_counter() - started,
    )


def _check_relation(neighbours: Neighbours, voters: Voters) -> None:
    if neighbours not in voters.relations:
        known = ", ".join(relation.value for relation in voters.relations)
        raise InputError(
            f"neighbours={neighbours.value!r}: these voters protect under {known}, since records are dealt out by "
            "their places. Take one of these, or name the owners of the records."
        )


def _check_publishing(pate: Pate, terms: Terms) -> None:
    if not pate.publish_epsilon:
        return
    check_publishable(pate.aggregator)
    if terms.account is not None:
        raise InputError(
            "publish_epsilon=True: costs privacy in a way that a ledger does not know. Leave it out: the epsilon "
            "whatever the votes is public."
        )


def _prepared(data: DataSet, pate: Pate, tell: Progress) -> tuple[Split, Split, Classroom]:
    """The public inputs, the test examples, and what voters see."""
    public, test = _divided(data.test, pate)
    tell("features", 0.0)
    mapped = data if pate.fixed is None else with_features(data, pate.fixed)
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
    return public, test, room


class _Curve:
    """The student's accuracy now and then, while it learns."""

    def __init__(self, model: nn.Module, test: Split, tell: Callable[[float], None]) -> None:
        self._model, self._test, self._tell, self._steps = model, test, tell, 0
        self.points: list[tuple[int, float]] = []

    def progress(self, share: float) -> None:
        """Counts a step, and tests where a further part of the way is done."""
        self._steps += 1
        if share * _CURVE_POINTS >= len(self.points) + 1:
            self.points.append((self._steps, evaluate(self._model, self._test, "classification")))
        self._tell(share)


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
