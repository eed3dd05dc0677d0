"""Teachers speak where a student errs, one vote moves the test by one, and the budget pays for every question."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from tacit.accounting import epsilon
from tacit.accounting.pate import confident_gnmax_epsilon, threshold_divergences
from tacit.core import BudgetExceededError, InputError
from tacit.core.privacy import Budget, Neighbours
from tacit.core.randomness import Randomness
from tacit.ledger import Ledger
from tacit.pate import ConfidentGNMax
from tacit.pate.answering import Session, Terms
from tacit.pate.interactive import Conversation, Interaction, against, checking_round, converse, expected_votes
from tacit.pate.selection import CHOICES, choose_rows
from tacit.pate.students import Supervised

DELTA = 1e-5
TEACHERS = 100


def rng(seed: int = 5) -> Randomness:
    return Randomness(unsafe_seed=seed)


def quiet(threshold: float) -> ConfidentGNMax:
    return ConfidentGNMax(threshold, 1e-6, 1e-6)


def how(*questions: int, opening: float = 60, checking: float = 30, sigma: float = 1e-6, **rest) -> Interaction:
    aggregators = (ConfidentGNMax(threshold, sigma, sigma) for threshold in (opening, checking))
    return Interaction(*aggregators, questions, **rest)


@st.composite
def questions(draw):
    """Votes, a vote that moves (or is lost), and a student's probabilities."""
    votes = draw(st.lists(st.integers(0, 12), min_size=2, max_size=5).filter(any))
    source = draw(st.sampled_from([k for k, count in enumerate(votes) if count]))
    target = draw(st.sampled_from([None, *range(len(votes))]))
    weights = draw(st.lists(st.floats(0, 1), min_size=len(votes), max_size=len(votes)).filter(lambda w: sum(w) > 0.1))
    other = list(votes)
    other[source] -= 1
    if target is not None:
        other[target] += 1
    return np.array([votes]), np.array([other]), np.array([weights]) / sum(weights)


@given(questions())
def test_one_vote_moves_the_test_by_one_at_most(question):
    """Also where a teacher falls silent, so that the student expects one vote less."""
    votes, other, probabilities = question
    expected, of_other = (expected_votes(probabilities, max(1, int(v.sum()))) for v in (votes, other))
    assert abs(against(votes, expected).max() - against(other, of_other).max()) <= 1
    assert abs(against(votes, expected).max() - against(other, expected).max()) <= 1


@given(questions())
def test_differences_are_those_of_a_loop(question):
    votes, _, probabilities = question
    teachers = int(votes.sum())
    found = against(votes, expected_votes(probabilities, teachers))[0]
    for k, count in enumerate(votes[0]):
        assert abs(found[k] - (count - teachers * probabilities[0, k])) <= 0.5 + 1e-9


def plain_round(votes, probabilities, rows, threshold, confidence):
    """Algorithm 2 of the paper as it is written, without noise: votes for each answer, and the student's own ones."""
    answers, own = {}, {}
    for row in rows:
        teachers = sum(votes[row])
        shares = [math.floor(teachers * p + 0.5) for p in probabilities[row]]
        if max(n - s for n, s in zip(votes[row], shares, strict=True)) >= threshold:
            answers[row] = max(votes[row])
        elif max(probabilities[row]) > confidence:
            own[row] = int(np.argmax(probabilities[row]))
    return answers, own


@pytest.mark.parametrize("seed", range(5))
def test_a_round_is_algorithm_2(seed):
    stream = np.random.default_rng(seed)
    votes = stream.multinomial(TEACHERS, stream.dirichlet(np.full(4, 0.3), size=80))
    probabilities = stream.dirichlet(np.full(4, 0.1), size=80)
    probabilities[::2] = votes[::2] / TEACHERS  # every other time the student thinks as the teachers do
    rows = stream.permutation(80)[:50]
    settings = dataclasses.replace(how(1, confidence=0.8), checking=quiet(29.5))
    found = checking_round(Session(votes, rng()), probabilities, rows, settings)
    answers, own = plain_round(votes, probabilities, rows, 29.5, 0.8)
    assert found.answers.asked.tolist() == rows.tolist()
    chosen = votes[found.answers.rows, found.answers.labels]
    assert dict(zip(found.answers.rows, chosen, strict=True)) == answers
    assert dict(zip(found.own_rows, found.own_labels, strict=True)) == own
    assert len(answers) > 5
    assert len(own) > 5
    assert len(answers) + len(own) < 50
    np.testing.assert_array_equal(found.expected, expected_votes(probabilities[rows], TEACHERS))


def test_the_check_has_the_noise_that_it_is_accounted_for():
    """It passes as a normal number of the right deviation does around the difference, not around the count."""
    count = 10_000
    votes = np.tile([80, 20], (count, 1))
    probabilities = np.tile([0.5, 0.5], (count, 1))
    settings = dataclasses.replace(how(1), checking=ConfidentGNMax(40, 20, 1e-6))
    found = checking_round(Session(votes, rng()), probabilities, np.arange(count), settings)

    def score(excess: float, sigma: float) -> float:
        chance = float(stats.norm.sf((40 - excess) / sigma))
        return abs(len(found.answers.rows) / count - chance) / math.sqrt(chance * (1 - chance) / count)

    assert score(30, 20) < 4
    assert all(score(*wrong) > 6 for wrong in [(30, 10), (30, 17), (30, 24), (28, 20), (80, 20)])


def world(count: int = 120) -> tuple[np.ndarray, torch.Tensor]:
    """Two clouds of points, and teachers who nearly agree on them."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    inputs = torch.randn(count, 3, generator=generator) + 4 * labels[:, None]
    votes = np.full((count, 2), 5)
    votes[np.arange(count), labels.numpy()] = TEACHERS - 5
    return votes, inputs


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


STUDENT = Supervised(steps=60, batch_size=16, learning_rate=0.1)


def run(settings: Interaction, terms: Terms | None = None, told: list[float] | None = None) -> Conversation:
    votes, inputs = world()
    progress = None if told is None else told.append
    return converse(votes, inputs, inputs, network, STUDENT, settings, rng(), terms=terms, progress=progress)


def test_a_student_that_is_right_is_confirmed_and_costs_tests_alone():
    told: list[float] = []
    found = run(how(20, 40, 40, confidence=0.6), told=told)
    assert [len(one.answers.asked) for one in found.rounds] == [20, 40, 40]
    assert len(found.rounds[0].answers.rows) == 20
    later = found.rounds[1]
    assert len(later.own_rows) > len(later.answers.rows)
    assert (later.own_labels == later.own_rows % 2).all()
    assert len(set(found.answers.asked.tolist())) == 100
    assert told[-1] == 1
    assert told == sorted(told)
    votes, inputs = world()
    assert (found.model(inputs).argmax(1).numpy() == votes.argmax(1)).mean() > 0.95


def test_a_student_that_is_wrong_is_told():
    votes, _ = world()
    wrong = np.where(votes == 5, 0.95, 0.05)
    found = checking_round(Session(votes, rng()), wrong, np.arange(50), how(1))
    assert found.answers.rows.tolist() == list(range(50))
    assert (found.answers.labels == np.arange(50) % 2).all()
    assert len(found.own_rows) == 0


@pytest.mark.parametrize("choose", CHOICES)
def test_no_question_is_asked_twice(choose):
    found = run(how(30, 30, 100, choose=choose))
    assert sorted(found.answers.asked.tolist()) == list(range(120))
    assert [len(one.answers.asked) for one in found.rounds] == [30, 30, 60]


def test_rows_are_chosen_by_name():
    probabilities = np.stack([np.linspace(0.5, 1, 6), 1 - np.linspace(0.5, 1, 6)], axis=1)
    features = torch.eye(6)
    rows = {
        choice: choose_rows(choice, 3, features=features, probabilities=probabilities, asked=[1]).tolist()
        for choice in CHOICES
    }
    assert rows["least-confident"] == [0, 2, 3]
    assert len(set(map(tuple, rows.values()))) == 3
    assert all(1 not in found and len(set(found)) == 3 for found in rows.values())
    opening = choose_rows("least-confident", 3, features=features, asked=[1])
    assert opening.tolist() == rows["representative"]


@pytest.fixture
def account(tmp_path):
    def make(budget: float):
        ledger = Ledger.create(tmp_path / "budget.sqlite", dataset="digits", budget=Budget(budget, DELTA))
        return ledger.account("digits")

    return make


@pytest.mark.parametrize("budget", [1.0, 1.4, 50.0])
def test_the_budget_ends_the_rounds_and_the_ledger_counts_all_of_them(account, budget):
    book = account(budget)
    found = run(how(30, 30, 30, sigma=30.0), Terms(book))
    assert book.spent() <= budget
    assert book.spent() == pytest.approx(epsilon(found.event(Neighbours.ADD_REMOVE), DELTA), rel=1e-6)
    assert found.answers.out_of_budget == (budget < 50)
    assert len(found.answers.asked) == 90 or budget < 50
    if budget == 1.0:
        assert len(found.rounds[0].answers.asked) < 30


def test_nothing_is_asked_where_not_one_question_fits(account):
    with pytest.raises(BudgetExceededError):
        run(how(30, 30, sigma=5.0), Terms(account(0.05)))


def test_epsilon_of_the_votes_counts_every_test_and_what_the_student_expected():
    votes, _ = world()
    found = run(how(20, 40, sigma=15.0))
    first, later = found.rounds
    parts = [
        confident_gnmax_epsilon(
            votes[one.answers.asked],
            np.isin(one.answers.asked, one.answers.rows),
            DELTA,
            threshold=threshold,
            sigma1=15.0,
            sigma2=15.0,
            baseline=baseline,
        ).unsafe_value
        for one, threshold, baseline in ((first, 60, None), (later, 30, later.expected))
    ]
    total = found.epsilon(votes, DELTA)
    assert max(parts) < total.unsafe_value < sum(parts)
    assert total.unsafe_value < epsilon(found.event(Neighbours.ADD_REMOVE), DELTA)
    assert "unsafe" not in repr(total)
    # The student expects what teachers say: the test is far below its threshold, not at the count of 95.
    sure = (votes[later.answers.asked] - later.expected).max(1)
    assert np.median(sure) < 20
    assert threshold_divergences([np.median(sure)], 30, 15.0, [2.0]) != threshold_divergences([95], 30, 15.0, [2.0])


def test_no_answer_in_the_first_round_is_named():
    with pytest.raises(InputError, match="answered=0: no question was answered"):
        run(how(20, 20, opening=200))


def talk(votes, inputs):
    return converse(votes, inputs, inputs, network, STUDENT, how(3), rng())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: how(), r"questions=\(\): the first round is missing"),
        (lambda: how(3, 0), "questions=0"),
        (lambda: how(3, confidence=1.0), "confidence=1.0"),
        (lambda: how(3, choose="best"), "choose='best': must be one of"),
        (lambda: expected_votes([[0.5, 0.5]], 0), "teachers=0"),
        (lambda: against(np.ones((2, 2), int), np.ones((1, 2), int)), r"expected votes of shape \(1, 2\)"),
        (lambda: talk(world()[0][:5], world()[1]), "votes=5 rows"),
        (
            lambda: talk(world()[0][:0], world()[1][:0]),
            "votes=0 rows",
        ),
        (
            lambda: converse(
                np.array([[3, 4], [3, 5]]), world()[1][:2], world()[1][:2], network, STUDENT, how(3), rng()
            ),
            "adds up to 8",
        ),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(InputError, match=message):
        make()
