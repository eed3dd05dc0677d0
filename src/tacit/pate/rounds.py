"""Questions to the voters and lessons for the student, by turns."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import nn

from tacit.core.errors import BudgetExceededError
from tacit.core.randomness import Randomness
from tacit.pate.answering import Answers, Session, Terms
from tacit.pate.plan import Pate
from tacit.pate.selection import Rows, choose_rows, student_probabilities
from tacit.pate.students import Lesson
from tacit.pate.students.student import Progress, part_of
from tacit.pate.voters import Classroom, Poll, Pollster
from tacit.training.threads import threads_for

_STUDENTS_BATCH = 500  # about, for the number of threads alone


def take_turns(
    pate: Pate,
    room: Classroom,
    ask: Pollster,
    student: nn.Module,
    randomness: Randomness,
    *,
    terms: Terms,
    progress: Progress,
) -> tuple[Poll, Answers, Lesson]:
    """Asks and teaches in rounds, until all of them are over or the budget is spent; votes, answers, the last lesson.

    Every round after the first one chooses its questions by what the student has learned, and teaches the same student
    all answers so far. Rounds compose adaptively: what they choose depends on answers given before, which are public.

    Raises:
        BudgetExceededError: not even the first question fits.
    """
    poll, answers = _first_round(pate, room, ask, randomness, terms)
    lesson = _teach(pate, 0, room, student, answers, progress)
    for number in range(1, pate.rounds):
        seen = room.seen_by(student)
        rows = _chosen(pate, number, seen, student, answers.asked).tolist()
        if not rows:
            break
        votes = ask(seen, rows, randomness)
        try:
            given = _answers(pate, votes, rows, randomness, terms)
        except BudgetExceededError:
            return poll, dataclasses.replace(answers, out_of_budget=True), lesson
        poll, answers = poll.followed_by(votes, rows), Answers.joined([answers, given])
        lesson = _teach(pate, number, seen, student, answers, progress)
    return poll, answers, lesson


def _first_round(
    pate: Pate, room: Classroom, ask: Pollster, randomness: Randomness, terms: Terms
) -> tuple[Poll, Answers]:
    rows = _chosen(pate, 0, room, None, ()).tolist()
    poll = ask(room, rows, randomness)
    return poll, _answers(pate, poll, rows, randomness, terms)


def _answers(pate: Pate, poll: Poll, rows: Sequence[int], randomness: Randomness, terms: Terms) -> Answers:
    session = Session(poll.unsafe_votes, randomness, terms)
    return session.ask(rows, pate.aggregator, tested=poll.unsafe_tested)


def _chosen(pate: Pate, number: int, room: Classroom, student: nn.Module | None, asked: Sequence[int] | Rows) -> Rows:
    """Which public inputs a round asks for: none that was asked for before."""
    wanted = pate.queries * (number + 1) // pate.rounds - pate.queries * number // pate.rounds
    said = None if student is None else student_probabilities(student, room.questions)
    features = room.question_features
    return choose_rows(pate.choose, wanted, features=features, probabilities=said, asked=asked, seed=pate.seed)


def _teach(
    pate: Pate, number: int, room: Classroom, student: nn.Module, answers: Answers, progress: Progress
) -> Lesson:
    rows, labels = (torch.from_numpy(values).to(room.questions.device) for values in (answers.rows, answers.labels))
    lesson = Lesson(room.questions, room.question_features, rows, labels)
    with threads_for(student, _STUDENTS_BATCH):
        pate.student.teach(student, lesson, seed=pate.seed + number, progress=part_of(progress, number, pate.rounds))
    return lesson
