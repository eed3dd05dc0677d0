"""Reading and adding to the history of one account in its database."""

import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa

from tacit.core.errors import LedgerError
from tacit.ledger.database import Database, now
from tacit.ledger.history import History, broken, link
from tacit.ledger.schema import accounts, history

Record = Mapping[str, Any]

# Machines of a team differ by seconds; a clock that is further behind than this was moved.
_CLOCK_TOLERANCE = datetime.timedelta(minutes=5)

_HEAD = sa.select(accounts.c.length, accounts.c.head).where(accounts.c.id == sa.bindparam("account"))
_LOCKED_HEAD = _HEAD.with_for_update()
_RECORDS = (
    sa.select(history.c.number, history.c.body, history.c.hash)
    .where(history.c.account_id == sa.bindparam("account"), history.c.number >= sa.bindparam("first"))
    .order_by(history.c.number)
)
_MOVE = (
    accounts.update()
    .where(accounts.c.id == sa.bindparam("account"))
    .values(length=sa.bindparam("length"), head=sa.bindparam("head"))
)
_RECORD = (
    sa.bindparam("number", type_=sa.Integer),
    sa.bindparam("body", type_=sa.Text),
    sa.bindparam("head", type_=sa.Text),
)
_ADD = history.insert().from_select(list(history.c), sa.select(sa.bindparam("account", type_=sa.Integer), *_RECORD))
# Both in one statement where the database allows it: the lock is held while it travels.
_MOVED = _MOVE.returning(accounts.c.id).cte("moved")
_MOVE_AND_ADD = history.insert().from_select(list(history.c), sa.select(_MOVED.c.id, *_RECORD))


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

    def read(self) -> History:
        """The whole history, every link verified."""
        found = History()
        with self.database.read() as connection:
            self._follow(found, connection, self._head(connection, _HEAD))
        return found

    def append(self, record_after: Callable[[History], Record]) -> int:
        """Add the record that ``record_after`` makes of the history so far, and return its number.

        The history cannot change in between. If ``record_after`` raises, nothing is written.

        Raises:
            LedgerError: the history is broken, the clock was moved back, or the database cannot be written.
        """
        with self.database.write() as connection:
            head = self._head(connection, _LOCKED_HEAD)
            try:
                self._follow(self._known, connection, head)
            except LedgerError:
                self._known = History()
                raise
            created = now()
            _check_clock(created, self._known.written)
            number = self._known.length
            write_record(
                connection,
                self._account_id,
                number,
                self._known.head,
                {**record_after(self._known), "created": created},
            )
        return number

    def _head(self, connection: sa.Connection, query: sa.Select[Any]) -> tuple[int, str]:
        row = connection.execute(query, {"account": self._account_id}).first()
        if row is None:
            raise broken("its account was deleted")
        return row.length, row.head

    def _follow(self, known: History, connection: sa.Connection, end: tuple[int, str]) -> None:
        if (known.length, known.head) != end:
            rows = connection.execute(_RECORDS, {"account": self._account_id, "first": known.length})
            for number, body, stored_hash in rows:
                known.replay(number, body, stored_hash)
        known.require_end(*end)


def write_record(connection: sa.Connection, account_id: int, number: int, previous: str, record: Record) -> str:
    """Add one record and move the account's head to it; returns its hash."""
    body = json.dumps(dict(record))
    head = link(previous, number, body)
    values = {"account": account_id, "number": number, "length": number + 1, "body": body, "head": head}
    if connection.dialect.name == "postgresql":
        connection.execute(_MOVE_AND_ADD, values)
    else:
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
