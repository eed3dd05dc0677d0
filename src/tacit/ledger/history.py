"""An account's history as it is replayed: record after record, each linked to the one before it by its hash.

A record is a JSON text. Its hash covers that text, its number and the hash of the record before, so nothing in the past
can be changed, left out or reordered without changing every later hash and the account's head. Whoever can write the
whole database can forge a whole history; comparing heads that were noted elsewhere shows that too.

| kind | says |
|---|---|
| opened | the account's terms; the first record and no other |
| reserved | a run may draw the noise of so many steps, which costs this event |
| drawn | the noise of the first so many steps of a reservation may have been drawn, by this owner or those before |
| committed, released | the end of a reservation: what so many steps cost, or that none began |
| settled | the end of a reservation that nobody will commit: it counts whole |
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tacit.core.errors import LedgerError
from tacit.ledger.entries import Entry, EntryState
from tacit.ledger.terms import Terms


def link(previous: str, number: int, body: str) -> str:
    """The hash of a record, from the hash of the one before it; that of the first is empty."""
    return hashlib.sha256(f"{previous} {number} {body}".encode("utf-8", "surrogatepass")).hexdigest()


class History:
    """What an account's records say up to now.

    Attributes:
        length, head: how many records were replayed, and the hash of the last.
        terms: of the account, from its first record.
        opened, written: when the account was opened, and the latest time in any record.
        counted: how often each encoded event counts as spent.
    """

    terms: Terms

    def __init__(self) -> None:
        self.length = 0
        self.head = ""
        self.opened = ""
        self.written = ""
        self.counted: Counter[str] = Counter()
        self._reserved: dict[int, dict[str, Any]] = {}
        self._drawn: dict[int, int] = {}
        self._last_record: dict[int, int] = {}
        self._owner: dict[int, str] = {}
        self._closed: dict[int, dict[str, Any]] = {}

    @property
    def entries(self) -> dict[int, Entry]:
        """What the records say of each reservation, by its number.

        Made when asked for: a process that spends replays what all others wrote, and only wants to know what counts.
        """
        return {number: self._entry(number) for number in self._reserved}

    def is_open(self, reservation: int) -> bool:
        """Whether there is such a reservation and it was not closed."""
        return reservation in self._reserved and reservation not in self._closed

    def drawn(self, reservation: int) -> int:
        """The mark of a reservation: no noise was drawn for a step at or above it."""
        return self._drawn.get(reservation, 0)

    def last_record(self, reservation: int) -> int:
        """The number of the last record of a reservation: it moves on with whatever becomes of it."""
        return self._last_record.get(reservation, reservation)

    def owner(self, reservation: int) -> str:
        """Who raised the mark of a reservation last; empty before the first mark, and where an older tacit wrote it."""
        return self._owner.get(reservation, "")

    def counts_anew(self, record: Mapping[str, Any]) -> bool:
        """Whether something would count as spent by a next record that did not count before."""
        if record["kind"] == "committed":
            return bool(record["event"] != self._reserved[record["reservation"]]["event"])
        return bool(record["kind"] == "reserved")

    def replay(self, number: int, body: str, stored_hash: str) -> None:
        """Take the next record, or refuse it with a `LedgerError` that says what is wrong with it."""
        if number != self.length:
            raise broken(f"record {self.length} is missing")
        head = link(self.head, number, body)
        if head != stored_hash:
            raise broken(f"record {number} was changed after it was written")
        try:
            self._apply(number, json.loads(body))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise broken(f"record {number} cannot be read ({type(error).__name__})") from error
        self.length, self.head = number + 1, head

    def require_end(self, length: int, head: str) -> None:
        """Refuse a history that does not end where the account says."""
        if self.length == 0:
            raise broken("it has no first record")
        if (self.length, self.head) != (length, head):
            raise broken(f"it should hold {length} records and end with hash {head[:12]}, and does not")

    def encode(self, record: Mapping[str, Any]) -> str:
        """The text of a next record. One that `replay` would refuse is refused: written, it could not be taken back."""
        try:
            body = json.dumps(dict(record))
            self._check(self.length, json.loads(body))
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(
                f"ledger: a record that cannot be read back ({error}) was not written. Give whole numbers of steps, "
                "and texts for names and notes."
            ) from error
        return body

    def _check(self, number: int, record: dict[str, Any]) -> None:
        kind = record["kind"]
        _text(record["created"])
        if (number == 0) != (kind == "opened"):
            raise ValueError("an account is opened once, by its first record")
        if kind == "opened":
            Terms.from_dict(record)
        elif kind == "reserved":
            _count(record["steps"])
            for name in ("run", "note", "event"):
                _text(record[name])
        else:
            self._check_continuation(kind, record)

    def _check_continuation(self, kind: str, record: dict[str, Any]) -> None:
        number = record["reservation"]
        if not self.is_open(number):
            raise ValueError("the reservation is closed, or there is none")
        most = self._reserved[number]["steps"]
        if kind == "drawn":
            _count(record["steps"], least=self.drawn(number), most=most)
            _text(record.get("owner", ""))
        elif EntryState(kind) is EntryState.COMMITTED:
            _count(record["steps"], most=most)
            _text(record["event"])

    def _apply(self, number: int, record: dict[str, Any]) -> None:
        self._check(number, record)
        kind = record["kind"]
        if kind == "opened":
            self.terms, self.opened = Terms.from_dict(record), record["created"]
        elif kind == "reserved":
            self.counted[record["event"]] += 1
            self._reserved[number] = record
        else:
            self._continue(kind, record)
            self._last_record[record["reservation"]] = number
        self.written = max(self.written, record["created"])

    def _continue(self, kind: str, record: dict[str, Any]) -> None:
        number = record["reservation"]
        if kind == "drawn":
            self._drawn[number], self._owner[number] = record["steps"], record.get("owner", "")
            return
        state = EntryState(kind)
        if state is EntryState.COMMITTED:
            self.counted[record["event"]] += 1
        if state is not EntryState.SETTLED:
            self._uncount(self._reserved[number]["event"])
        self._closed[number] = record

    def _entry(self, number: int) -> Entry:
        reserved, closed = self._reserved[number], self._closed.get(number)
        state = EntryState.RESERVED if closed is None else EntryState(closed["kind"])
        charged = closed if closed is not None and state is EntryState.COMMITTED else reserved
        return Entry(
            id=number,
            run=reserved["run"],
            note=reserved["note"],
            state=state,
            steps_reserved=reserved["steps"],
            steps_drawn=self.drawn(number),
            last_record=self.last_record(number),
            steps_charged=0 if state is EntryState.RELEASED else charged["steps"],
            encoded_event=charged["event"],
            created=reserved["created"],
            closed=None if closed is None else closed["created"],
        )

    def _uncount(self, event: str) -> None:
        self.counted[event] -= 1
        if self.counted[event] == 0:
            del self.counted[event]


def broken(what: str) -> LedgerError:
    """The error for a history that cannot be believed."""
    return LedgerError(
        f"ledger: the history of the account was tampered with or damaged: {what}. "
        "Nothing may be spent. Restore the ledger from a backup."
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("must be a text")
    return value


def _count(value: Any, *, least: int = 1, most: int | None = None) -> int:
    if type(value) is not int or value < least or (most is not None and value > most):
        raise ValueError("count out of range")
    return value
