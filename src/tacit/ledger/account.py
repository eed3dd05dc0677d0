"""One account a data set: what may be spent on it, what was, and the gate between."""

import dataclasses
import math
from collections import Counter
from typing import Any

from dp_accounting import DpEvent

from tacit.core.errors import BudgetExceededError, InputError, LedgerError, UnsupportedError
from tacit.core.privacy import Budget, Neighbours, PrivacyUnit
from tacit.core.validation import check_count
from tacit.ledger.entries import Entry
from tacit.ledger.gate import GATES, Adaptive, Gate, under_both_rules
from tacit.ledger.history import History
from tacit.ledger.journal import Journal, Record
from tacit.ledger.reservation import LedgerReservation, Reservation
from tacit.ledger.resumption import ResumedReservation, check_resumable
from tacit.ledger.spending import EventFor, Events, encode_event
from tacit.ledger.terms import Rule, Terms


class Account:
    """The budget of one data set and everything that was spent of it.

    Made by `Ledger.create` and `Ledger.account`. An account without a budget refuses nothing but keeps the
    history. Whatever is asked of it, its history is verified first, and a history that was edited is refused.

    Attributes:
        terms: what may be spent, for whom, and by which rule; every run must have the same unit and relation.
        created: when the account was opened, in UTC.
    """

    def __init__(self, terms: Terms, created: str, journal: Journal) -> None:
        self.terms = terms
        self.created = created
        self._journal = journal
        self._gate: Gate = GATES[terms.rule](terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Account) and (self.terms, self.created) == (other.terms, other.created)

    def __hash__(self) -> int:
        return hash((self.terms, self.created))

    def __repr__(self) -> str:
        return f"Account({self.terms!r}, created={self.created!r})"

    @property
    def dataset(self) -> str:
        """The name of the data set."""
        return self.terms.dataset

    @property
    def budget(self) -> Budget | None:
        """The limit, for one ``unit`` under ``neighbours``; None for no limit."""
        return self.terms.budget

    @property
    def unit(self) -> PrivacyUnit:
        """What the budget protects as a whole."""
        return self.terms.unit

    @property
    def neighbours(self) -> Neighbours:
        """The relation that the budget speaks of."""
        return self.terms.neighbours

    @property
    def rule(self) -> Rule:
        """How spending is added up."""
        return self.terms.rule

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

        One transaction adds up every entry that counts (reserved and committed, never released) and
        ``event_for(steps)`` by the account's rule and compares with the budget, holding the account's lock, so that
        two runs cannot both take the last of it. On PostgreSQL such a transaction also notes how many more of the event
        would fit, and for a second after it has verified the history a process takes from that note at once.

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
        steps = check_count("steps", steps)
        self._check_terms(neighbours, unit)
        requested = encode_event(event_for(steps))

        record = {"kind": "reserved", "run": run, "note": note, "steps": steps, "event": requested}
        counted: Events = Counter()

        def checked(history: History) -> Record:
            self._check_budget(history.counted, requested)
            counted.update(history.counted + Counter([requested]))
            return record

        number = self._journal.append_allowed(record)
        if number is None:
            number = self._journal.append(checked, lambda: self._gate.spare(counted))
        return LedgerReservation(self._journal, number, event_for, steps)

    def resume(
        self,
        reservation: int,
        event_for: EventFor,
        *,
        steps_done: int,
        steps_begun: int | None = None,
        last_record: int | None = None,
    ) -> Reservation:
        """Take up a reservation that a process left open when it died; nothing is written until a step or the end.

        The first step always writes a record, also where the mark already covers it, unless another process has written
        one first: so `Entry.last_record` tells whether anything was drawn after a process had stopped. If the other
        process lives after all, it draws no noise at or above the mark, and below it none once it has looked.

        Whoever resumes must see to what the ledger cannot see: that a step below the mark either draws the very noise
        that it drew before, on the same sum, or none.

        Args:
            reservation: the entry's number.
            event_for: as it was for `reserve`.
            steps_done: the step to begin with; those below it are not drawn again.
            steps_begun: below this noise may have been drawn, so that it is charged in any case. The ledger's mark
                unless given; less only where it is known that a process stopped in order before its mark.
            last_record: the entry's when ``steps_begun`` was found, to be refused if it has another one now.

        Raises:
            LedgerError: there is no such open reservation, it was made for another event, its mark is below what
                was done or begun, or it has moved on.
        """
        entry = self._entry(reservation)
        if last_record is not None and entry.last_record != last_record:
            raise LedgerError(
                f"reservation {reservation}: another process has drawn from it meanwhile (record {entry.last_record}). "
                "Wait until it has ended, and resume then."
            )
        begun = entry.steps_drawn if steps_begun is None else steps_begun
        check_resumable(entry, event_for, steps_done, begun)
        return ResumedReservation(self._journal, entry, event_for, steps_done=steps_done, steps_begun=begun)

    def settle(self, reservation: int) -> Entry:
        """Close an open reservation that nobody will commit or take up again, and return what became of it.

        If it was never marked, no noise was drawn for it, and it is released. Otherwise it counts whole for ever: how
        much of it was drawn is known up to its mark, but what a part of it costs only the run could say. Should its
        process live after all, the ledger refuses it the noise of every step beyond the mark.

        Raises:
            LedgerError: there is no such open reservation.
        """

        def closing(history: History) -> Record:
            if not history.is_open(reservation):
                raise LedgerError(f"reservation {reservation} is {self._entry(reservation).state.value}, not open.")
            return {"kind": "settled" if history.drawn(reservation) else "released", "reservation": reservation}

        self._journal.append(closing)
        return self._entry(reservation)

    def require(self, event: DpEvent, *, neighbours: Neighbours, unit: PrivacyUnit) -> None:
        """Refuse now what `reserve` would refuse, and write nothing: for work that takes several reservations.

        It promises nothing, since others may spend in between.

        Raises:
            BudgetExceededError: the budget does not hold the event.
            InputError: the relation or unit is not the account's.
        """
        self._check_terms(neighbours, unit)
        self._check_budget(self._journal.read().counted, encode_event(event))

    def entries(self) -> list[Entry]:
        """Every reservation and what became of it, oldest first."""
        return list(self._journal.read().entries.values())

    def spent(self, delta: float | None = None) -> float:
        """Epsilon of everything reserved and committed, by the account's rule; infinite where no bound is finite.

        Under the adaptive rule it is the least limit that would have admitted everything, to be read beside the
        budget; `odometer` is the bound that holds at any moment.

        Args:
            delta: where to evaluate epsilon; the budget's delta unless given. An account without a budget
                needs it.
        """
        return self._gate.epsilon(self._journal.read().counted, self._delta(delta))

    def odometer(self, delta: float | None = None) -> float:
        """Epsilon of everything spent, valid however the runs were chosen and whenever one looks; see
        `tacit.accounting.filters.RenyiOdometer`.

        Args:
            delta: as for `spent`.
        """
        return Adaptive(self.terms).odometer(self._journal.read().counted, self._delta(delta))

    def remaining(self) -> float:
        """The budget's epsilon less what is spent, at least 0; infinite without a budget.

        It is a guide: epsilons do not add up, and a run of slightly more than this may still fit beside the
        others. `reserve` decides by composing.
        """
        return math.inf if self.budget is None else max(0.0, self.budget.epsilon - self.spent())

    def to_dict(self, delta: float | None = None) -> dict[str, Any]:
        """Budget, spent, remaining and entries as plain JSON values; None stands for an absent or infinite
        number.

        ``rule`` is the rule that applies, and ``rules`` says what is spent and remains under both; ``odometer`` is
        what was spent however the runs were chosen. ``head`` is the hash of the last record: kept elsewhere, it shows
        later that nothing before it was changed.

        Args:
            delta: where to evaluate what is spent; without it an account without a budget gives None.
        """
        history = self._journal.read()
        at = delta if delta is not None or self.budget is None else self.budget.delta
        rules = None if at is None else under_both_rules(self.terms, history.counted, at)
        applies = None if rules is None else rules[self.rule.value]
        remaining = None if applies is None else applies["remaining"]
        return {
            "dataset": self.dataset,
            "budget": None if self.budget is None else dataclasses.asdict(self.budget),
            "spent": None if applies is None else {"epsilon": applies["spent"], "delta": at},
            "remaining": None if remaining is None else {"epsilon": remaining, "delta": at},
            "rule": self.rule.value,
            "rules": rules,
            "odometer": None if at is None else self._odometer_facts(history.counted, at),
            "neighbours": self.neighbours.value,
            "unit": str(self.unit),
            "created": self.created,
            "records": history.length,
            "head": history.head,
            "entries": [entry.to_dict() for entry in history.entries.values()],
        }

    def _entry(self, reservation: int) -> Entry:
        entry = self._journal.read().entries.get(reservation)
        if entry is None:
            raise LedgerError(
                f"reservation {reservation}: the account of {self.dataset!r} has none of this number. "
                "See `tacit ledger history`."
            )
        return entry

    def _delta(self, delta: float | None) -> float:
        if delta is not None:
            return delta
        if self.budget is None:
            raise InputError(f"delta=None: the account of {self.dataset!r} has no budget. Give a delta, such as 1e-5.")
        return self.budget.delta

    def _odometer_facts(self, events: Events, delta: float) -> dict[str, float | None]:
        try:
            reading = Adaptive(self.terms).odometer(events, delta)
        except UnsupportedError:
            reading = math.inf
        return {"epsilon": reading if reading < math.inf else None, "delta": delta}

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

    def _check_budget(self, spent_events: Events, requested: str) -> None:
        together = spent_events + Counter([requested])
        if self.budget is None or self._gate.admits(together, self.budget):
            return
        delta = self.budget.delta
        total, spent, alone = (
            self._gate.epsilon(events, delta) for events in (together, spent_events, Counter([requested]))
        )
        raise BudgetExceededError(
            f"dataset={self.dataset!r}: the run needs epsilon {alone:.4g} by itself and would bring the "
            f"total to {total:.4g}, above the budget of {self.budget.epsilon:.4g} at delta {delta:.3g} "
            f"(spent {spent:.4g}, remaining {max(0.0, self.budget.epsilon - spent):.4g}). "
            "Nothing was spent. Plan fewer steps or more noise."
        )
