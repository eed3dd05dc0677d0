r"""Interactive Confident-GNMax: teachers answer where a student is wrong or unsure, and confirm it elsewhere.

Teachers and student take turns. In the first round the teachers answer some questions by `ConfidentGNMax`, and a
student learns from them. In every further round the student first says what it thinks of the questions,
:math:`p(x)`, which is public. With M teachers and their votes :math:`n(x)`,

1. if :math:`\max_j (n_j - M p_j) + N(0, \sigma_1^2) \ge T`, the teachers answer
   :math:`\arg\max_j (n_j + N(0, \sigma_2^2))`;
2. else, if :math:`\max_j p_j > \gamma`, the student's own answer is taken: teachers do not object to it;
3. else nobody answers.

Then a new student learns from all answers so far.

**Guarantee.** Given the public p, one vote that moves changes two of the differences by 1, hence their largest by at
most 1: the test is a Gaussian mechanism of sensitivity 1 as in `ConfidentGNMax`, whatever p is, and steps 2 and 3 are
post-processing of it. Rounds compose adaptively, since every p depends on answers given before and on nothing else.

Reference: Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson, Scalable Private Learning with PATE, 2018,
algorithm 2.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from dp_accounting import dp_event
from torch import Tensor, nn

from tacit.accounting.pate import PrivateEpsilon
from tacit.accounting.pate.votes import check_votes
from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_choice, check_count, check_open_unit
from tacit.pate.account import data_dependent_epsilon, event_of_rounds
from tacit.pate.aggregation import ConfidentGNMax
from tacit.pate.answering import Answers, Round, Session, Terms
from tacit.pate.selection import (
    CHOICES,
    Probabilities,
    Rows,
    check_probabilities,
    choose_rows,
    student_probabilities,
)
from tacit.pate.students.student import Lesson, Progress, Student, part_of
from tacit.pate.votes import Votes
from tacit.training.threads import threads_for

_QUESTIONS_AT_ONCE = 500  # of a student, about, for the number of threads alone


def expected_votes(probabilities: npt.ArrayLike, teachers: int) -> Votes:
    """M times the probabilities, in whole votes: how teachers would vote if they thought as the student does."""
    shares = check_count("teachers", teachers) * check_probabilities(probabilities)
    return np.floor(shares + 0.5).astype(np.int64)


def against(votes: Votes, expected: Votes) -> Votes:
    """The votes less those that a student expects: positive where teachers want a class more than the student does.

    One vote that moves changes the largest difference of a question by 1 at most. Private, as the votes are.
    """
    if votes.shape != expected.shape:
        raise InputError(
            f"expected votes of shape {expected.shape}: must be {votes.shape}, as the votes are. Let the student "
            "predict every public input."
        )
    return votes - expected


@dataclasses.dataclass(frozen=True)
class Interaction:
    r"""How teachers and student take turns.

    Attributes:
        opening: answers the first round, when there is no student yet.
        checking: answers the further rounds; its threshold is of votes beyond those that the student expects, so it is
            lower than that of ``opening``.
        questions: how many are asked in each round, the first one included.
        confidence: :math:`\gamma`, above which the student's own answer counts where teachers do not object.
        choose: which are asked, as in `choose_rows`.
    """

    opening: ConfidentGNMax
    checking: ConfidentGNMax
    questions: tuple[int, ...]
    confidence: float = 0.9
    choose: str = "representative"

    def __post_init__(self) -> None:
        for count in self.questions:
            check_count("questions", count)
        if not self.questions:
            raise InputError("questions=(): the first round is missing. Give the number of questions in each round.")
        check_open_unit("confidence", self.confidence)
        check_choice("choose", self.choose, CHOICES)

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "interactive-gnmax"


@dataclasses.dataclass(frozen=True)
class Conversation:
    """What came out.

    Attributes:
        model: the last student.
        rounds: one after the other; fewer than wanted where the budget ended them.
    """

    model: nn.Module
    rounds: tuple[Round, ...]

    @property
    def answers(self) -> Answers:
        """What the teachers answered in all rounds."""
        return Answers.joined([one.answers for one in self.rounds])

    def event(self, neighbours: Neighbours) -> dp_event.DpEvent:
        """What all rounds cost together, whatever the votes."""
        return event_of_rounds(self.rounds, neighbours)

    def epsilon(self, votes: Votes, delta: float) -> PrivateEpsilon | None:
        """Epsilon of all rounds where teachers agree as they do; private, since it tells how they agree."""
        return data_dependent_epsilon(votes, self.rounds, delta)


def converse(
    votes: Votes,
    inputs: Tensor,
    features: Tensor,
    build: Callable[[], nn.Module],
    student: Student,
    how: Interaction,
    randomness: Randomness,
    *,
    seed: int = 0,
    terms: Terms | None = None,
    progress: Progress | None = None,
) -> Conversation:
    """Lets teachers and student take turns, until all rounds are over or the budget is spent.

    Args:
        votes: on all public inputs, ``[rows, classes]``; private.
        inputs, features: the public inputs, and features of them as in `Lesson`.
        build: makes the student's network anew in every round, on the device of the inputs, so that an early error
            does not stay.
        student: how it learns.
        how: the rounds.
        randomness: of the noise.
        seed: of everything that is public.
        terms: who pays.
        progress: is told the share that is done.

    Raises:
        BudgetExceededError: not even the first question fits.
        InputError: no question of the first round was answered, or votes and inputs do not match.
    """
    check_votes(votes)
    if not len(votes) or len(votes) != len(inputs):
        raise InputError(
            f"votes={len(votes)} rows: must be as many as the {len(inputs)} public inputs, and at least 1. Let the "
            "teachers vote on all of them."
        )
    session, rounds = Session(votes, randomness, terms), list[Round]()

    def chosen(said: Probabilities | None) -> Rows:
        asked = [row for one in rounds for row in one.answers.asked]
        wanted = how.questions[len(rounds)]
        return choose_rows(how.choose, wanted, features=features, probabilities=said, asked=asked, seed=seed)

    def taught() -> nn.Module:
        model, tell = build(), part_of(progress or (lambda _share: None), len(rounds) - 1, len(how.questions))
        with threads_for(model, _QUESTIONS_AT_ONCE):
            student.teach(model, lesson_of(rounds, inputs, features), seed=seed, progress=tell)
        return model

    rounds.append(Round(how.opening, session.ask(chosen(None).tolist(), how.opening)))
    model = taught()
    while len(rounds) < len(how.questions):
        said = student_probabilities(model, inputs)
        rounds.append(checking_round(session, said, chosen(said), how))
        if not len(rounds[-1].answers.asked):  # the budget is spent, or no public input is left
            break
        model = taught()
    return Conversation(model, tuple(rounds))


def checking_round(session: Session, probabilities: Probabilities, rows: Rows, how: Interaction) -> Round:
    """One round of questions that a student has already an opinion on.

    Args:
        session: with the votes on all public inputs.
        probabilities: the student's, on all public inputs.
        rows: which to ask for.
        how: its ``checking`` and ``confidence`` are used.
    """
    expected = expected_votes(probabilities, int(session.votes[0].sum()))
    answers = session.ask(rows.tolist(), how.checking, tested=against(session.votes, expected))
    silent = answers.asked[~np.isin(answers.asked, answers.rows)]
    own = silent[probabilities[silent].max(axis=1) > how.confidence]
    return Round(how.checking, answers, expected[answers.asked], own, probabilities[own].argmax(axis=1))


def lesson_of(rounds: Sequence[Round], inputs: Tensor, features: Tensor) -> Lesson:
    """What teachers answered and what a student may answer itself, all rounds together."""
    rows = np.concatenate([part for one in rounds for part in (one.answers.rows, one.own_rows)])
    labels = np.concatenate([part for one in rounds for part in (one.answers.labels, one.own_labels)])
    rows_here, labels_here = (torch.from_numpy(values).to(inputs.device) for values in (rows, labels))
    return Lesson(inputs, features, rows_here, labels_here)
