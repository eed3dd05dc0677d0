"""Questions to the teachers, one after another, as long as the budget lasts.

The ledger counts what an answer costs whatever the votes, and every question is recorded there before its noise is
drawn. That answers cost less where teachers agree is for statements (`tacit.accounting.pate`): a budget that depended
on the votes would tell of them by where it ends.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event

from tacit.core.errors import BudgetExceededError
from tacit.core.privacy import Neighbours, PrivacyUnit
from tacit.core.randomness import Randomness
from tacit.ledger import Account, Reservation, repeated, unlimited
from tacit.pate.aggregation import Aggregator
from tacit.pate.votes import Votes


@dataclasses.dataclass(frozen=True)
class Answers:
    """What the teachers answered. All of it is public: noise was added to everything that depends on private data.

    Attributes:
        asked: the rows of the public set that were asked for, in order.
        rows: those that were answered.
        labels: their noisy answers.
        out_of_budget: whether the budget held fewer questions or answers than were wanted.
    """

    asked: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    out_of_budget: bool

    def event(self, aggregator: Aggregator, neighbours: Neighbours) -> dp_event.DpEvent:
        """What they cost together, whatever the votes."""
        return _event(aggregator, neighbours, len(self.asked), len(self.rows))


@dataclasses.dataclass(frozen=True)
class Terms:
    """Who pays, and for the protection of whom.

    Attributes:
        account: where the budget comes from; None for no limit.
        neighbours, unit: of the guarantee; a partition by user protects users.
        run: a name for the ledger's history.
    """

    account: Account | None = None
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: PrivacyUnit = dataclasses.field(default_factory=PrivacyUnit)
    run: str = "pate"


def ask(
    votes: Votes,
    rows: Sequence[int],
    aggregator: Aggregator,
    randomness: Randomness,
    *,
    answers: int | None = None,
    terms: Terms | None = None,
) -> Answers:
    """Asks for these rows in their order, until all are asked, ``answers`` were given, or the budget is spent.

    Args:
        votes: ``[public rows, classes]``, from `count_votes`; private.
        rows: which rows to ask for, such as `random_rows` gives. The order must not depend on private data, but for
            answers given before.
        aggregator: how noisy answers are made.
        randomness: of the noise; two calls never share any.
        answers: stop after so many; all that pass by default.
        terms: who pays.

    Raises:
        BudgetExceededError: not even one question fits.
    """
    terms = terms or Terms()
    session = _Session(votes, aggregator, randomness.fork())
    wanted = len(rows) if answers is None else min(answers, len(rows))
    left = list(rows)
    while left and len(session.given) < wanted:
        # Questions that are not answered leave something over, so that further rounds may fit.
        affordable = _affordable(aggregator, len(left), wanted - len(session.given), terms)
        if affordable == 0 and session.asked:
            break
        session.ask(left[: max(affordable, 1)], wanted - len(session.given), terms)
        left = list(rows)[len(session.asked) :]
    return session.answers(out_of_budget=bool(left) and len(session.given) < wanted)


class _Session:
    """What was asked and answered so far."""

    def __init__(self, votes: Votes, aggregator: Aggregator, randomness: Randomness) -> None:
        self._votes, self._aggregator, self._randomness = votes, aggregator, randomness
        self.asked: list[int] = []
        self.given: list[tuple[int, int]] = []

    def ask(self, rows: Sequence[int], answers: int, terms: Terms) -> None:
        """Asks for these rows until so many were answered; what was reserved for the others goes back."""
        aggregator, neighbours = self._aggregator, terms.neighbours
        with (
            _reserved(aggregator.question_event(neighbours), len(rows), terms) as questions,
            _reserved(aggregator.answer_event(neighbours), min(len(rows), answers), terms) as replies,
        ):
            for row in rows:
                if replies.steps_begun == replies.steps:
                    return
                questions.before_noise(questions.steps_begun)
                self.asked.append(row)
                if aggregator.passes(self._votes[row], self._randomness.stream("question", len(self.asked))):
                    replies.before_noise(replies.steps_begun)
                    stream = self._randomness.stream("answer", len(self.asked))
                    self.given.append((row, aggregator.answer(self._votes[row], stream)))

    def answers(self, *, out_of_budget: bool) -> Answers:
        """All of it."""
        rows, labels = (np.array([pair[part] for pair in self.given], dtype=np.int64) for part in (0, 1))
        return Answers(np.array(self.asked, dtype=np.int64), rows, labels, out_of_budget)


def random_rows(count: int, wanted: int, *, seed: int = 0) -> npt.NDArray[np.int64]:
    """Rows of the public set in a random order; nothing of it is private."""
    return np.random.default_rng(seed).permutation(count)[:wanted]


def _affordable(aggregator: Aggregator, questions: int, answers: int, terms: Terms) -> int:
    """How many questions fit into the budget even if all of them were answered; 0 where none does."""
    account = terms.account
    if account is None:
        return questions

    def fits(count: int) -> bool:
        event = _event(aggregator, terms.neighbours, count, min(count, answers))
        try:
            account.require(event, neighbours=terms.neighbours, unit=terms.unit)
        except BudgetExceededError:
            return False
        return True

    return _largest(fits, questions)


def _reserved(event: dp_event.DpEvent, steps: int, terms: Terms) -> Reservation:
    account = terms.account
    if account is None or isinstance(event, dp_event.NoOpDpEvent):
        return unlimited(steps)
    return account.reserve(repeated(event), steps, run=terms.run, neighbours=terms.neighbours, unit=terms.unit)


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to ``most`` that fits; 0 where none does."""
    if fits(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _event(aggregator: Aggregator, neighbours: Neighbours, questions: int, answers: int) -> dp_event.DpEvent:
    parts = ((aggregator.question_event(neighbours), questions), (aggregator.answer_event(neighbours), answers))
    return dp_event.ComposedDpEvent(
        [
            dp_event.SelfComposedDpEvent(event, count)
            for event, count in parts
            if count and not isinstance(event, dp_event.NoOpDpEvent)
        ]
    )
