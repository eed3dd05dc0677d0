"""Questions to the teachers, one after another, as long as the budget lasts.

The ledger counts what an answer costs whatever the votes, and every question is recorded there before its noise is
drawn. That answers cost less where teachers agree is for statements (`tacit.accounting.pate`): a budget that depended
on the votes would tell of them by where it ends.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event

from tacit.accounting.pate.votes import check_votes
from tacit.core.errors import BudgetExceededError
from tacit.core.privacy import Neighbours, PrivacyUnit
from tacit.core.randomness import Randomness
from tacit.ledger import Account, Reservation, Rule, repeated, unlimited
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

    @classmethod
    def joined(cls, rounds: "Sequence[Answers]") -> "Answers":
        """The answers of all rounds, in order."""
        asked, rows, labels = (
            np.concatenate([getattr(one, name) for one in rounds]) for name in ("asked", "rows", "labels")
        )
        return cls(asked, rows, labels, rounds[-1].out_of_budget)

    def event(self, aggregator: Aggregator, neighbours: Neighbours) -> dp_event.DpEvent:
        """What they cost together, whatever the votes."""
        return event_of(aggregator, neighbours, len(self.asked), len(self.rows))


def _none() -> npt.NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class Round:
    """What one round of questions brought. All of it is public.

    Attributes:
        aggregator: what the round cost by.
        answers: of the teachers.
        expected: ``[asked, classes]``, the votes that a student expected, which the test of a question did not count;
            None where the test saw the votes themselves.
        own_rows, own_labels: where teachers did not object to the student, and what it says there.
    """

    aggregator: Aggregator
    answers: Answers
    expected: Votes | None = None
    own_rows: npt.NDArray[np.int64] = dataclasses.field(default_factory=_none)
    own_labels: npt.NDArray[np.int64] = dataclasses.field(default_factory=_none)

    def first(self, count: int) -> "Round":
        """The first questions alone, and what teachers answered to them."""
        asked = self.answers.asked[:count]
        early = np.isin(self.answers.rows, asked)
        rows, labels = self.answers.rows[early], self.answers.labels[early]
        ended = self.answers.out_of_budget and len(asked) == len(self.answers.asked)
        answers = Answers(asked, rows, labels, out_of_budget=ended)
        return Round(self.aggregator, answers, None if self.expected is None else self.expected[:count])


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

    def most(self, delta: float) -> float:
        """The epsilon that nothing paid for here can pass: that of the budget, where it holds whatever is looked at
        before deciding (the adaptive rule), and for the same relation and unit at this delta; otherwise infinite.
        """
        account = self.account
        if account is None or account.budget is None or account.rule != Rule.ADAPTIVE:
            return math.inf
        same = (account.neighbours, account.unit) == (self.neighbours, self.unit) and account.budget.delta <= delta
        return account.budget.epsilon if same else math.inf


def ask(
    votes: Votes,
    rows: Sequence[int],
    aggregator: Aggregator,
    randomness: Randomness,
    *,
    answers: int | None = None,
    terms: Terms | None = None,
) -> Answers:
    """Asks for these rows in their order, in one round: see `Session.ask`.

    Raises:
        InputError: votes that are not those of the same number of teachers on every row: what one person moves would
            not be known.
        BudgetExceededError: not even the first question fits.
    """
    return Session(check_votes(votes), randomness, terms).ask(rows, aggregator, answers=answers)


class Session:
    """Questions to the teachers in one round or several, each with noise of its own.

    Args:
        votes: ``[public rows, classes]``, from `count_votes`; private.
        randomness: of the noise; two sessions never share any.
        terms: who pays.
    """

    def __init__(self, votes: Votes, randomness: Randomness, terms: Terms | None = None) -> None:
        self.votes, self._randomness, self._terms = votes, randomness.fork(), terms or Terms()
        self._asked = 0

    def ask(
        self, rows: Sequence[int], aggregator: Aggregator, *, answers: int | None = None, tested: Votes | None = None
    ) -> Answers:
        """Asks for these rows in their order, until all are asked, ``answers`` were given, or the budget is spent.

        Args:
            rows: which rows to ask for, such as `random_rows` gives. The order must not depend on private data, but
                for answers given before.
            aggregator: how noisy answers are made.
            answers: stop after so many; all that pass by default.
            tested: ``[public rows, classes]``, what decides whether a question is answered, where that is not the
                votes. One person may move its largest number by 1 at most, as in `against`.

        Raises:
            BudgetExceededError: not even the first question of the session fits.
        """
        wanted = len(rows) if answers is None else min(answers, len(rows))
        found = _Round(self.votes if tested is None else tested)
        left = list(rows)
        while left and len(found.given) < wanted:
            # Questions that are not answered leave something over, so that more may fit.
            still_wanted = wanted - len(found.given)
            affordable = _affordable(aggregator, len(left), still_wanted, self._terms)
            if affordable == 0 and self._asked:
                break
            try:
                self._ask(left[: max(affordable, 1)], aggregator, still_wanted, found)
            except BudgetExceededError:
                if not self._asked:
                    raise
                break  # another run has spent it meanwhile: what was answered stays
            left = list(rows)[len(found.asked) :]
        return found.answers(out_of_budget=bool(left) and len(found.given) < wanted)

    def _ask(self, rows: Sequence[int], aggregator: Aggregator, answers: int, found: "_Round") -> None:
        """Asks for these rows until so many were answered; what was reserved for the others goes back."""
        terms = self._terms
        with (
            reserved(aggregator.question_event(terms.neighbours), len(rows), terms) as questions,
            reserved(aggregator.answer_event(terms.neighbours), min(len(rows), answers), terms) as replies,
        ):
            for row in rows:
                if replies.steps_begun == replies.steps:
                    return
                questions.before_noise(questions.steps_begun)
                self._asked += 1
                found.asked.append(row)
                if aggregator.passes(found.tested[row], self._randomness.stream("question", self._asked)):
                    replies.before_noise(replies.steps_begun)
                    stream = self._randomness.stream("answer", self._asked)
                    found.given.append((row, aggregator.answer(self.votes[row], stream)))


class _Round:
    """What was asked and answered so far."""

    def __init__(self, tested: Votes) -> None:
        self.tested = tested
        self.asked: list[int] = []
        self.given: list[tuple[int, int]] = []

    def answers(self, *, out_of_budget: bool) -> Answers:
        """All of it."""
        rows, labels = (np.array([pair[part] for pair in self.given], dtype=np.int64) for part in (0, 1))
        return Answers(np.array(self.asked, dtype=np.int64), rows, labels, out_of_budget)


def _affordable(aggregator: Aggregator, questions: int, answers: int, terms: Terms) -> int:
    """How many questions fit into the budget even if all of them were answered; 0 where none does."""
    account = terms.account
    if account is None:
        return questions

    def fits(count: int) -> bool:
        event = event_of(aggregator, terms.neighbours, count, min(count, answers))
        try:
            account.require(event, neighbours=terms.neighbours, unit=terms.unit)
        except BudgetExceededError:
            return False
        return True

    return _largest(fits, questions)


def reserved(event: dp_event.DpEvent, steps: int, terms: Terms) -> Reservation:
    """So many steps of the event, set aside for who pays; what costs nothing is not."""
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


def event_of(aggregator: Aggregator, neighbours: Neighbours, questions: int, answers: int) -> dp_event.DpEvent:
    """What so many questions and answers cost together, whatever the votes."""
    parts = ((aggregator.question_event(neighbours), questions), (aggregator.answer_event(neighbours), answers))
    return dp_event.ComposedDpEvent(
        [
            dp_event.SelfComposedDpEvent(event, count)
            for event, count in parts
            if count and not isinstance(event, dp_event.NoOpDpEvent)
        ]
    )
