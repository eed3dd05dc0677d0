"""Asking: the budget is taken first, then the noise is drawn."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours, PrivacyUnit, Statement
from tacit.core.randomness import Randomness
from tacit.datasets.tables.table import Table
from tacit.queries.answer import FIXED_SEED, Answer
from tacit.queries.noise import Cost
from tacit.queries.query import CONFIDENCE, Query, Setting, Tally
from tacit.queries.terms import Terms

if TYPE_CHECKING:
    from tacit.ledger import Account
    from tacit.queries.composition import Composition


def ask(
    query: Query,
    table: Table,
    terms: Terms,
    *,
    account: "Account | None" = None,
    randomness: Randomness | None = None,
    confidence: float = CONFIDENCE,
    run: str = "query",
) -> Answer:
    """The private answer to one query.

    What it costs follows from public facts, and is in the ledger before any noise is drawn. A table that cannot be read
    costs nothing.

    Args:
        query: what to ask.
        table: the rows, with their public schema.
        terms: what the answer may cost, and whom it protects.
        account: where the budget comes from; None for no limit.
        randomness: of the noise; a new secret one by default.
        confidence: of the interval.
        run: a name for the ledger's history.

    Raises:
        BudgetExceededError: the account does not hold the cost. Nothing was released.
        InputError: with row and column for a cell that the schema does not allow; for terms or bounds that make no
            sense, and for terms that are not the account's.
    """
    tallied = _Tallied.of(query, table, Setting(table.schema, terms, confidence))
    return tallied.answer(account, Randomness() if randomness is None else randomness, run)


@dataclasses.dataclass(frozen=True)
class _Tallied:
    """A query whose rows were read: nothing but the budget can stop its answer now. The tally is **private**."""

    query: Query
    setting: Setting
    cost: Cost
    tally: Tally

    @classmethod
    def of(cls, query: Query, table: Table, setting: Setting) -> "_Tallied":
        cost = query.cost(setting)  # which refuses what cannot be answered, before a row is read
        return cls(query, setting, cost, query.tally(table))

    def answer(self, account: "Account | None", randomness: Randomness, run: str) -> Answer:
        """Charges, then draws the noise."""
        setting = self.setting
        with _charged(self.cost, setting.terms, account, run):
            stream = randomness.fork().stream("query", run)
            reading = self.query.read(self.tally, setting, stream)
        asked, void = self.query.describe(), randomness.voids_guarantee
        return Answer(asked, reading, setting.confidence, setting.terms, self.cost, void)


@contextlib.contextmanager
def _charged(cost: Cost, terms: Terms, account: "Account | None", run: str) -> Iterator[None]:
    """Within, noise may be drawn: the account knows of it, durably."""
    if account is None:
        yield
        return
    reserved = account.reserve(lambda _: cost.event(1), 1, run=run, neighbours=terms.neighbours, unit=terms.unit)
    with reserved as reservation:
        reservation.before_noise(0)
        yield


class Session:
    """Several queries to one table, for the protection of the same unit under the same relation.

    Args:
        table: the rows.
        neighbours, unit: of every answer; the account's own where there is one and nothing else is said.
        account: where the budget comes from; None for no limit.
        randomness: of the noise; a new secret one by default.
        name: for the ledger's history.
    """

    def __init__(
        self,
        table: Table,
        *,
        neighbours: Neighbours | None = None,
        unit: PrivacyUnit | None = None,
        account: "Account | None" = None,
        randomness: Randomness | None = None,
        name: str = "query",
    ) -> None:
        self.table, self.account, self.name = table, account, name
        self.neighbours = neighbours or (Neighbours.ADD_REMOVE if account is None else account.neighbours)
        self.unit = unit or (PrivacyUnit() if account is None else account.unit)
        self._randomness = Randomness() if randomness is None else randomness
        self.answers: list[Answer] = []

    def terms(self, epsilon: float, delta: float = 0.0, mechanism: str = "") -> Terms:
        """Terms for one answer."""
        return Terms(epsilon, delta, mechanism, self.neighbours, self.unit)

    def ask(self, query: Query, terms: Terms, *, confidence: float = CONFIDENCE) -> Answer:
        """The private answer to one query; see `ask`."""
        return self._answer(self._tallied(query, terms, confidence))

    def ask_all(self, queries: Sequence[tuple[Query, Terms]], *, confidence: float = CONFIDENCE) -> list[Answer]:
        """The private answers to several queries, or a refusal that cost nothing.

        The budget must hold all of them, and the rows are read for all of them, before the first is charged: a cell
        that the schema does not allow in the column of the last query does not lose answers that were paid for.
        """
        self.require(queries)
        tallied = [self._tallied(query, terms, confidence) for query, terms in queries]
        return [self._answer(each) for each in tallied]

    def _tallied(self, query: Query, terms: Terms, confidence: float) -> _Tallied:
        if (terms.neighbours, terms.unit) != (self.neighbours, self.unit):
            raise InputError("terms: must have the relation and the unit of the session. Make them by its terms().")
        return _Tallied.of(query, self.table, Setting(self.table.schema, terms, confidence))

    def _answer(self, tallied: _Tallied) -> Answer:
        run = f"{self.name} {len(self.answers) + 1}: {tallied.query.kind} of {tallied.query.column}"
        answer = tallied.answer(self.account, self._randomness, run)
        self.answers.append(answer)
        return answer

    def require(self, queries: Sequence[tuple[Query, Terms]]) -> None:
        """Refuses now, before anything is spent, what the queries together would be refused for."""
        costs = [query.cost(Setting(self.table.schema, terms)) for query, terms in queries]
        if self.account is not None and costs:
            from tacit.queries.composition import composed_event

            self.account.require(composed_event(costs), neighbours=self.neighbours, unit=self.unit)

    def composition(self, delta: float) -> "Composition":
        """What all answers so far cost together."""
        from tacit.queries.composition import compose

        return compose([answer.cost for answer in self.answers], delta, self.neighbours, self.unit)

    def statement(self, delta: float) -> Statement:
        """The guarantee of all answers together, in words."""
        asked = ", ".join(answer.asked for answer in self.answers)
        void = self._randomness.voids_guarantee
        return Statement(
            epsilon=math.inf if void else self.composition(delta).pld,
            delta=delta,
            neighbours=self.neighbours,
            unit=self.unit,
            mechanism=asked or "no query",
            sampler="no sampling",
            accountant="pld",
            caveats=(FIXED_SEED,) if void else (),
            released=f"list of {len(self.answers)} answers",
        )
