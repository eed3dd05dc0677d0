"""Questions stop where the budget does, and the ledger counts what was really asked."""

import numpy as np
import pytest

from tacit.accounting import epsilon
from tacit.core import BudgetExceededError
from tacit.core.privacy import Budget, Neighbours
from tacit.core.randomness import Randomness
from tacit.ledger import Ledger
from tacit.pate import ConfidentGNMax, GNMax, LNMax
from tacit.pate.answering import Answers, Terms, ask, random_rows

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


def test_two_calls_draw_different_noise():
    source = Randomness()
    first, second = (ask(TORN, range(60), GNMax(20.0), source).labels.tolist() for _ in range(2))
    assert first != second
