"""Questions stop where the budget does, and the ledger counts what was really asked."""

import dataclasses

import numpy as np
import pytest

from tacit.accounting import epsilon
from tacit.core import BudgetExceededError, InputError
from tacit.core.privacy import Budget, Neighbours
from tacit.core.randomness import Randomness
from tacit.ledger import Ledger
from tacit.pate import ConfidentGNMax, GNMax, LNMax, answering
from tacit.pate.answering import Answers, Session, Terms, ask
from tacit.pate.selection import random_rows

SURE = np.tile([100, 0, 0], (60, 1))
TORN = np.tile([34, 33, 33], (60, 1))
DELTA = 1e-5


@pytest.fixture
def account(tmp_path):
    def make(budget: float):
        return Ledger.create(tmp_path / "budget.sqlite", dataset="digits", budget=Budget(budget, DELTA)).account(
            "digits"
        )

    return make


def rng(seed: int = 5) -> Randomness:
    return Randomness(unsafe_seed=seed)


def test_all_are_answered_where_nothing_limits():
    found = ask(SURE, range(60), LNMax(0.5), rng())
    assert found.asked.tolist() == found.rows.tolist() == list(range(60))
    assert (found.labels == 0).mean() > 0.95
    assert not found.out_of_budget


def test_the_order_is_the_callers():
    rows = random_rows(60, 10, seed=3)
    assert ask(SURE, rows, GNMax(5.0), rng()).rows.tolist() == rows.tolist()
    assert len(set(rows.tolist())) == 10


def test_unsure_teachers_are_not_heard():
    aggregator = ConfidentGNMax(threshold=80, sigma_threshold=5, sigma=5)
    votes = np.concatenate([SURE, TORN])
    found = ask(votes, range(120), aggregator, rng())
    assert found.asked.tolist() == list(range(120))
    assert set(found.rows.tolist()) == set(range(60))


def test_it_stops_after_enough_answers():
    found = ask(SURE, range(60), GNMax(5.0), rng(), answers=7)
    assert len(found.rows) == len(found.asked) == 7
    assert not found.out_of_budget


@pytest.mark.parametrize("aggregator", [LNMax(0.05), GNMax(40.0), ConfidentGNMax(80, 40.0, 40.0)])
def test_the_budget_ends_the_questions_and_holds(account, aggregator):
    book = account(0.9)
    found = ask(SURE, range(60), aggregator, rng(), terms=Terms(book))
    assert 0 < len(found.rows) < 60
    assert found.out_of_budget
    assert book.spent() <= 0.9
    assert book.spent() == pytest.approx(epsilon(found.event(aggregator, Neighbours.ADD_REMOVE), DELTA), rel=1e-6)
    one_more = Answers(np.append(found.asked, 0), np.append(found.rows, 0), np.append(found.labels, 0), True)
    assert epsilon(one_more.event(aggregator, Neighbours.ADD_REMOVE), DELTA) > 0.9


def test_a_budget_that_another_run_takes_away_meanwhile_leaves_what_was_answered(account, monkeypatch):
    book, aggregator = account(1.0), ConfidentGNMax(80.0, 30.0, 10.0)
    counts, affordable = [], answering._affordable

    def then_another_spends(*arguments):
        counts.append(affordable(*arguments))
        if len(counts) == 2:
            other = aggregator.answer_event(Neighbours.ADD_REMOVE)
            with answering.reserved(other, counts[1], Terms(book, run="another")) as taken:
                for step in range(counts[1]):
                    taken.before_noise(step)
        return counts[-1]

    monkeypatch.setattr(answering, "_affordable", then_another_spends)
    found = ask(TORN, range(60), aggregator, rng(), terms=Terms(book))
    assert counts[1] > 0
    assert len(found.asked) == counts[0] < 60
    assert found.out_of_budget
    assert book.spent() <= 1.0


def test_what_was_reserved_and_not_used_goes_back(account):
    book, aggregator = account(8.0), ConfidentGNMax(80, 10.0, 10.0)
    found = ask(TORN, range(20), aggregator, rng(), terms=Terms(book))
    assert len(found.asked) == 20
    assert len(found.rows) == 0
    expected = epsilon(found.event(aggregator, Neighbours.ADD_REMOVE), DELTA)
    assert book.spent() == pytest.approx(expected, rel=1e-6)


def test_no_question_fits(account):
    book = account(0.05)
    with pytest.raises(BudgetExceededError):
        ask(SURE, range(60), LNMax(0.05), rng(), terms=Terms(book))
    assert book.spent() == 0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([100, 1, 0], r"votes\[7\]: adds up to 101 with 100 teachers"),
        ([101, -1, 0], "votes: hold -1"),
        ([99.5, 0.5, 0], "votes: must be whole numbers"),
    ],
)
def test_votes_of_which_one_person_might_move_more_than_one_are_refused_before_they_cost(account, row, message):
    book, votes = account(1000.0), SURE.astype(float)
    votes[7] = row
    with pytest.raises(InputError, match=message):
        ask(votes, range(60), LNMax(0.5), rng(), terms=Terms(book))
    assert book.spent() == 0


def test_two_calls_draw_different_noise():
    source = Randomness()
    first, second = (ask(TORN, range(60), GNMax(20.0), source).labels.tolist() for _ in range(2))
    assert first != second


class InterruptedByNoiseError(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Spy(ConfidentGNMax):
    """Notes the noise that it would draw, and may be interrupted by an answer or a test."""

    heard: list[float] = dataclasses.field(default_factory=list)
    interrupted_by: str = ""

    def passes(self, votes, stream):
        self.heard.append(stream.standard_normal())
        if self.interrupted_by == "test":
            raise InterruptedByNoiseError
        return votes.max() >= self.threshold

    def answer(self, votes, stream):
        self.heard.append(stream.standard_normal())
        if self.interrupted_by == "answer":
            raise InterruptedByNoiseError
        return int(votes.argmax())


@pytest.mark.parametrize(("by", "questions", "answers"), [("test", 1, 0), ("answer", 1, 1)])
def test_what_is_interrupted_by_its_noise_was_paid_for(account, by, questions, answers):
    book, aggregator = account(8.0), Spy(80, 10.0, 10.0, interrupted_by=by)
    with pytest.raises(InterruptedByNoiseError):
        ask(SURE, range(20), aggregator, rng(), terms=Terms(book))
    asked, given = np.arange(questions), np.arange(answers)
    expected = epsilon(Answers(asked, given, given, False).event(aggregator, Neighbours.ADD_REMOVE), DELTA)
    assert book.spent() == pytest.approx(expected, rel=1e-6)


def test_every_test_and_every_answer_has_noise_of_its_own_in_all_rounds():
    aggregator = Spy(80, 10.0, 10.0)
    session = Session(SURE, rng())
    for rows in (range(20), range(20, 40), range(20)):
        session.ask(rows, aggregator)
    assert len(aggregator.heard) == len(set(aggregator.heard)) == 120


def test_what_is_tested_may_differ_from_what_is_answered():
    tested = np.zeros_like(SURE)
    tested[7:9, 2] = 90
    found = Session(SURE, rng()).ask(range(60), ConfidentGNMax(80, 1.0, 1.0), tested=tested)
    assert found.asked.tolist() == list(range(60))
    assert found.rows.tolist() == [7, 8]
    assert found.labels.tolist() == [0, 0]


def test_a_later_round_without_budget_asks_nothing(account):
    book, aggregator = account(0.9), GNMax(40.0)
    session = Session(SURE, rng(), Terms(book))
    assert len(session.ask(range(60), aggregator).rows) > 0
    spent = book.spent()
    later = session.ask(range(60), aggregator)
    assert len(later.asked) == len(later.rows) == 0
    assert later.out_of_budget
    assert book.spent() == spent
