"""One account a data set: what may be spent on it, what was, and the gate between."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from dp_accounting import DpEvent

from tacit.core.errors import BudgetExceededError, InputError
from tacit.core.privacy import Budget, Neighbours, PrivacyUnit
from tacit.core.validation import check_count
from tacit.ledger.database import Database, now
from tacit.ledger.entries import Entry, EntryState, read_entries
from tacit.ledger.reservation import LedgerReservation, Reservation
from tacit.ledger.schema import reservations
from tacit.ledger.spending import EventFor, compose, encode_event, unit_epsilon


@dataclasses.dataclass(frozen=True)
class Account:
    """The budget of one data set and everything that was spent of it.

    Made by `Ledger.create` and `Ledger.account`. An account without a budget refuses nothing but keeps the
    history.

    Attributes:
        dataset: the name of the data set.
        budget: the limit, for one ``unit`` under ``neighbours``; None for no limit.
        unit, neighbours: what the budget protects, against which change; every run must have the same.
        created: when the account was opened, in UTC.
    """

    dataset: str
    budget: Budget | None
    unit: PrivacyUnit
    neighbours: Neighbours
    created: str
    _id: int = dataclasses.field(repr=False)
    _database: Database = dataclasses.field(repr=False, compare=False)

    def reserve(
        self,
        event_for: EventFor,
        steps: int,
        *,
        run: str,
        neighbours: Neighbours,
        unit: PrivacyUnit,
        note: str = "",
    ) -> Reservation:
        """Take the cost of a whole run out of the budget, or refuse it and write nothing.

        One transaction composes every entry that counts (reserved and committed, never released) with
        ``event_for(steps)`` and compares epsilon at the budget's delta with the budget, holding the write
        lock, so that two runs cannot both take the last of it. Epsilon comes from privacy loss distributions,
        or from Rényi divergences where those do not cover an event.

        Args:
            event_for: the event of the first k steps, for k from 1 to ``steps``; see `repeated`.
            steps: how many steps the run plans.
            run: a name for the run, such as its folder.
            neighbours, unit: what the events were made for; they must be the account's own, since an event
                made for another relation would be counted wrongly.
            note: one line about the run.

        Raises:
            BudgetExceededError: the budget does not hold the run.
            InputError: the run's relation or unit is not the account's.
            UnsupportedError: no accountant can bound the events together.
            LedgerError: the ledger cannot be read or written.
        """
        check_count("steps", steps)
        self._check_terms(neighbours, unit)
        requested = encode_event(event_for(steps))
        row = {
            "account_id": self._id,
            "run": run,
            "note": note,
            "steps": steps,
            "event": requested,
            "created": now(),
        }
        with self._database.write() as connection:
            self._check_budget(_spent_events(read_entries(connection, self._id)), requested)
            insertion = reservations.insert().values(**row).returning(reservations.c.id)
            number = connection.execute(insertion).scalar_one()
        return LedgerReservation(self._database, number, event_for, steps)

    def require(self, event: DpEvent, *, neighbours: Neighbours, unit: PrivacyUnit) -> None:
        """Refuse now what `reserve` would refuse, and write nothing: for work that takes several reservations.

        It promises nothing, since others may spend in between.

        Raises:
            BudgetExceededError: the budget does not hold the event.
            InputError: the relation or unit is not the account's.
        """
        self._check_terms(neighbours, unit)
        with self._database.read() as connection:
            self._check_budget(_spent_events(read_entries(connection, self._id)), encode_event(event))

    def entries(self) -> list[Entry]:
        """Every reservation and what became of it, oldest first."""
        with self._database.read() as connection:
            return read_entries(connection, self._id)

    def spent(self, delta: float | None = None) -> float:
        """Epsilon of everything reserved and committed, composed; infinite where no bound is finite.

        Args:
            delta: where to evaluate epsilon; the budget's delta unless given. An account without a budget
                needs it.
        """
        return self._epsilon(_spent_events(self.entries()), self._delta(delta))

    def remaining(self) -> float:
        """The budget's epsilon less what is spent, at least 0; infinite without a budget.

        It is a guide: epsilons do not add up, and a run of slightly more than this may still fit beside the
        others. `reserve` decides by composing.
        """
        return math.inf if self.budget is None else max(0.0, self.budget.epsilon - self.spent())

    def to_dict(self, delta: float | None = None) -> dict[str, Any]:
        """Budget, spent, remaining and entries as plain JSON values; None stands for an absent or infinite
        number.

        Args:
            delta: where to evaluate what is spent; without it an account without a budget gives None.
        """
        history = self.entries()
        at = delta if delta is not None or self.budget is None else self.budget.delta
        spent = None if at is None else self._epsilon(_spent_events(history), at)
        remaining = None
        if self.budget is not None and spent is not None and at == self.budget.delta:
            remaining = max(0.0, self.budget.epsilon - spent)
        return {
            "dataset": self.dataset,
            "budget": None if self.budget is None else dataclasses.asdict(self.budget),
            "spent": None if spent is None else {"epsilon": spent if spent < math.inf else None, "delta": at},
            "remaining": None if remaining is None else {"epsilon": remaining, "delta": at},
            "neighbours": self.neighbours.value,
            "unit": str(self.unit),
            "created": self.created,
            "entries": [entry.to_dict() for entry in history],
        }

    def _delta(self, delta: float | None) -> float:
        if delta is not None:
            return delta
        if self.budget is None:
            raise InputError(f"delta=None: the account of {self.dataset!r} has no budget. Give a delta, such as 1e-5.")
        return self.budget.delta

    def _epsilon(self, encoded_events: Iterable[str], delta: float) -> float:
        return unit_epsilon(compose(encoded_events), delta, neighbours=self.neighbours, unit=self.unit)

    def _check_terms(self, neighbours: Neighbours, unit: PrivacyUnit) -> None:
        if neighbours is not self.neighbours:
            raise InputError(
                f"neighbours={neighbours.value!r}: the account of {self.dataset!r} counts under "
                f"{self.neighbours.value!r}. Plan the run under that relation."
            )
        if unit != self.unit:
            raise InputError(
                f"unit={str(unit)!r}: the account of {self.dataset!r} protects one {self.unit}. "
                "Plan the run for that unit."
            )

    def _check_budget(self, spent_events: list[str], requested: str) -> None:
        if self.budget is None:
            return
        delta = self.budget.delta
        total = self._epsilon([*spent_events, requested], delta)
        if total <= self.budget.epsilon:
            return
        spent = self._epsilon(spent_events, delta)
        alone = self._epsilon([requested], delta)
        raise BudgetExceededError(
            f"dataset={self.dataset!r}: the run needs epsilon {alone:.4g} by itself and would bring the "
            f"total to {total:.4g}, above the budget of {self.budget.epsilon:.4g} at delta {delta:.3g} "
            f"(spent {spent:.4g}, remaining {max(0.0, self.budget.epsilon - spent):.4g}). "
            "Nothing was spent. Plan fewer steps or more noise."
        )


def _spent_events(history: Iterable[Entry]) -> list[str]:
    return [entry.encoded_event for entry in history if entry.state is not EntryState.RELEASED]
