"""Reading and adding to the history of one account in its database."""

import datetime
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa

from tacit.core.errors import LedgerError
from tacit.ledger.database import Addition, AllowingDatabase, Database, Tail, now
from tacit.ledger.history import History, broken, link
from tacit.ledger.schema import accounts, history
from tacit.ledger.spending import Events, event_key

Record = Mapping[str, Any]

# Machines of a team differ by seconds; a clock that is further behind than this was moved.
_CLOCK_TOLERANCE = datetime.timedelta(minutes=5)
# For so long a process may spend by allowances and leave the records of others unread.
_TRUST_SECONDS = 1.0

_MOVE = (
    accounts.update()
    .where(accounts.c.id == sa.bindparam("account"))
    .values(length=sa.bindparam("length"), head=sa.bindparam("head"))
)
_ADD = history.insert().values(
    account_id=sa.bindparam("account"),
    number=sa.bindparam("number"),
    body=sa.bindparam("body"),
    hash=sa.bindparam("head"),
)


class Journal:
    """The history of one account: read whole and verified, or added to by one record in a transaction of its own.

    A writer keeps what it has verified and reads on from there: only records that are new to it. Memory moves on only
    by reading what was committed, so a write that fails leaves nothing behind here.

    Args:
        database: where it is.
        account_id: the account's row.
    """

    def __init__(self, database: Database, account_id: int) -> None:
        self.database = database
        self._account_id = account_id
        self._known = History()
        self._verified = -math.inf
        self._replaying = threading.Lock()

    def read(self) -> History:
        """The whole history, every link verified."""
        found = History()
        tail = self.database.tail(self._account_id)
        for record in tail.records:
            found.replay(*record)
        found.require_end(tail.length, tail.head)
        return found

    def append(self, record_after: Callable[[History], Record], allow: Callable[[], Events] = Counter) -> int:
        """Add the record that ``record_after`` makes of the history so far, and return its number.

        The history cannot change in between. If ``record_after`` raises, nothing is written.

        Args:
            record_after: makes the record.
            allow: where the record counts as spent, called after ``record_after``: which events fit beside all that
                counts then, so that `append_allowed` may add them.

        Raises:
            LedgerError: the history is broken, the clock was moved back, or the database cannot be written.
        """
        if isinstance(self.database, AllowingDatabase):
            self.follow(trust_seconds=_TRUST_SECONDS)  # now, while nobody waits for it
        first = self._known.length
        number = first

        def next_record(tail: Tail) -> Addition:
            nonlocal number
            known = self._catch_up(tail, first)
            created = now()
            _check_clock(created, known.written)
            number = known.length
            record = record_after(known)
            body = known.encode({**record, "created": created})
            allowances = None
            if known.counts_anew(record):
                allowances = {event_key(event): count for event, count in allow().items()}
            return Addition((number, body, link(known.head, number, body)), allowances)

        self.database.append(self._account_id, first, next_record)
        return number

    def append_allowed(self, record: Record) -> int | None:
        """Add the record of a reservation if an allowance is left for its event, and return its number.

        None where nothing was written and `append` must decide.

        Raises:
            LedgerError: as `append`, by what was read of the history last.
        """
        if not isinstance(self.database, AllowingDatabase):
            return None
        known = self.follow(trust_seconds=_TRUST_SECONDS)
        created = now()
        _check_clock(created, known.written)
        body = known.encode({**record, "created": created})
        return self.database.append_allowed(self._account_id, event_key(record["event"]), body)

    def follow(self, *, trust_seconds: float = -1.0) -> History:
        """The history with what was added since it was looked at last; where that is nothing, by one short query.

        Args:
            trust_seconds: for so long after a look there is no other.
        """
        with self._replaying:
            if time.monotonic() - self._verified <= trust_seconds:
                return self._known
            first = self._known.length
            return self._follow(self.database.following(self._account_id, first), first)

    def _catch_up(self, tail: Tail, first: int) -> History:
        """With the account locked, so that nobody has read more than the tail."""
        with self._replaying:
            return self._follow(tail, first)

    def _follow(self, tail: Tail, first: int) -> History:
        read_meanwhile = max(0, self._known.length - first)  # by another thread
        try:
            for record in tail.records[read_meanwhile:]:
                self._known.replay(*record)
            self._known.require_end(tail.length, tail.head)
        except LedgerError:
            self._known, self._verified = History(), -math.inf
            raise
        self._verified = time.monotonic()
        return self._known


def write_record(connection: sa.Connection, account_id: int, number: int, previous: str, record: Record) -> str:
    """Add one record and move the account's head to it; returns its hash."""
    body = json.dumps(dict(record))
    head = link(previous, number, body)
    values = {"account": account_id, "number": number, "length": number + 1, "body": body, "head": head}
    connection.execute(_MOVE, values)
    connection.execute(_ADD, values)
    return head


def _check_clock(created: str, written: str) -> None:
    try:
        behind = datetime.datetime.fromisoformat(written) - datetime.datetime.fromisoformat(created)
    except (ValueError, TypeError) as error:
        raise broken(f"its last time is {written!r}") from error
    if behind > _CLOCK_TOLERANCE:
        raise LedgerError(
            f"ledger: the clock says {created}, and the last record was written at {written}. "
            "Nothing was spent. Set the clock."
        )
