"""An account's history as it is replayed: record after record, each linked to the one before it by its hash.

A record is a JSON text. Its hash covers that text, its number and the hash of the record before, so nothing in the past
can be changed, left out or reordered without changing every later hash and the account's head. Whoever can write the
whole database can forge a whole history; comparing heads that were noted elsewhere shows that too.

| kind | says |
|---|---|
| opened | the account's terms; the first record and no other |
| reserved | a run may draw the noise of so many steps, which costs this event |
| drawn | the noise of the first so many steps of a reservation may have been drawn |
| committed, released | the end of a reservation: what so many steps cost, or that none began |
"""

import dataclasses
import hashlib
import json
from collections import Counter
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
        entries: by the number of their reservation.
        counted: how often each encoded event counts as spent.
    """

    terms: Terms

    def __init__(self) -> None:
        self.length = 0
        self.head = ""
        self.opened = ""
        self.written = ""
        self.entries: dict[int, Entry] = {}
        self.counted: Counter[str] = Counter()

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

    def _apply(self, number: int, record: dict[str, Any]) -> None:
        kind, created = record["kind"], record["created"]
        if not isinstance(created, str):
            raise TypeError("created must be a text")
        if (number == 0) != (kind == "opened"):
            raise ValueError("an account is opened once, by its first record")
        if kind == "opened":
            self.terms, self.opened = Terms.from_dict(record), created
        elif kind == "reserved":
            self._reserve(number, record)
        else:
            self._continue(kind, record)
        self.written = max(self.written, created)

    def _reserve(self, number: int, record: dict[str, Any]) -> None:
        steps, event = _count(record["steps"]), _text(record["event"])
        self.entries[number] = Entry(
            id=number,
            run=_text(record["run"]),
            note=_text(record["note"]),
            state=EntryState.RESERVED,
            steps_reserved=steps,
            steps_drawn=0,
            steps_charged=steps,
            encoded_event=event,
            created=record["created"],
            closed=None,
        )
        self.counted[event] += 1

    def _continue(self, kind: str, record: dict[str, Any]) -> None:
        entry = self.entries[record["reservation"]]
        if entry.state is not EntryState.RESERVED:
            raise ValueError("the reservation is closed")
        if kind == "drawn":
            drawn = _count(record["steps"], least=entry.steps_drawn, most=entry.steps_reserved)
            self.entries[entry.id] = dataclasses.replace(entry, steps_drawn=drawn)
            return
        state = EntryState(kind)
        committed = state is EntryState.COMMITTED
        event = _text(record["event"]) if committed else entry.encoded_event
        charged = _count(record["steps"], most=entry.steps_reserved) if committed else 0
        self._uncount(entry.encoded_event)
        if committed:
            self.counted[event] += 1
        self.entries[entry.id] = dataclasses.replace(
            entry, state=state, steps_charged=charged, encoded_event=event, closed=record["created"]
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
