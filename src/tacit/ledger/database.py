"""What a ledger asks of its database, whichever it is, and how an address becomes one.

A write is one transaction, and on the disk when it ends. Whoever appends a record first locks the account, so that what
it read is still true when it writes. Appending is what many processes do at once, so it speaks to the driver itself, in
as few statements as it can; everything else goes through SQLAlchemy.
"""

import abc
import contextlib
import datetime
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from tacit.core.errors import LedgerError
from tacit.ledger.history import broken

# A reservation computes an epsilon under the lock; several runs may queue behind one another.
LOCK_TIMEOUT_SECONDS = 120.0


def now() -> str:
    """The time in UTC as ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


StoredRecord = tuple[int, str, str]
"""One record of a history: its number, its text and its hash."""


class Tail(NamedTuple):
    """The end of an account's history: where the account says that it is, and the records from a number on."""

    length: int
    head: str
    records: Sequence[StoredRecord]

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[Any, ...]]) -> "Tail":
        """From the rows of `TAIL`."""
        if not rows:
            raise broken("its account was deleted")
        length, head, *_ = rows[0]
        return cls(length, head, [row[2:] for row in rows if row[2] is not None])


# With the first record's number and the account's row as placeholders. The account stands in each row.
TAIL = """
    SELECT accounts.length, accounts.head, history.number, history.body, history.hash
    FROM accounts LEFT JOIN history ON history.account_id = accounts.id AND history.number >= {first}
    WHERE accounts.id = {account} ORDER BY history.number
"""


class Addition(NamedTuple):
    """A record to add.

    Attributes:
        record: what is stored.
        allowances: how many more of an event, by its `event_key`, fit beside all that counts with this record; None
            where the allowances before still hold.
    """

    record: StoredRecord
    allowances: Mapping[str, int] | None


NextRecord = Callable[[Tail], Addition]
"""Makes the next record of an account whose history cannot change meanwhile."""


class Database(abc.ABC):
    """Transactions on one database; every failure of it becomes a `LedgerError` with a remedy.

    A writer keeps its connection between transactions. It may be used from several threads; connections are closed
    before a fork, because neither database allows to carry one into another process.

    Args:
        name: how messages call it; without a password.
        kept: the engine whose connections are kept.
    """

    def __init__(self, name: str, kept: sa.Engine) -> None:
        self.name = name
        self._kept = kept
        weakref.finalize(self, kept.dispose)
        _OPEN.add(self)

    def close(self) -> None:
        """Close the connections that are kept; the next write opens one again."""
        self._kept.dispose()

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that sees one consistent state."""
        with self._translated_errors(), self._reader().begin() as connection:
            yield connection

    def tail(self, account_id: int, first: int = 0) -> Tail:
        """The records of an account from a number on, and where they should end."""
        query = sa.text(TAIL.format(first=":first", account=":account"))
        with self.read() as connection:
            return Tail.of_rows(list(map(tuple, connection.execute(query, {"first": first, "account": account_id}))))

    def following(self, account_id: int, first: int) -> Tail:
        """As `tail`, by one statement on a connection that is kept: for a writer that asks often."""
        with self._translated_errors():
            return self._following(self._writer().raw_connection(), account_id, first)

    @contextlib.contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that is durable once the block ends, and undone if the block raises."""
        with self._translated_errors():
            with self._writer().begin() as connection:
                yield connection
            self._make_durable()

    def append(self, account_id: int, first: int, next_record: NextRecord) -> None:
        """Add one record to an account in a transaction of its own, durable on return.

        Args:
            account_id: the account's row.
            first: the number of the first record that ``next_record`` is shown.
            next_record: called with the account locked; if it raises, nothing is written.
        """
        with self._translated_errors():
            self._append(self._writer().raw_connection(), account_id, first, next_record)

    @abc.abstractmethod
    def is_missing(self) -> bool:
        """Whether there is nothing yet; `prepare` then makes it, and nothing else does."""

    @abc.abstractmethod
    def prepare(self) -> None:
        """Make the place ready for its first tables."""

    @abc.abstractmethod
    def lock_tables(self, connection: sa.Connection) -> None:
        """Within a write: wait until nobody else makes or changes tables."""

    @abc.abstractmethod
    def _reader(self) -> sa.Engine: ...

    @abc.abstractmethod
    def _writer(self) -> sa.Engine: ...

    @abc.abstractmethod
    def _following(self, pooled: sa.PoolProxiedConnection, account_id: int, first: int) -> Tail:
        """`following` on a connection, which it gives back."""

    @abc.abstractmethod
    def _append(self, pooled: sa.PoolProxiedConnection, account_id: int, first: int, next_record: NextRecord) -> None:
        """`append` on a connection, which it gives back."""

    @abc.abstractmethod
    def _make_durable(self) -> None:
        """Return when every write that has ended is on the disk."""

    @abc.abstractmethod
    def _remedy(self, cause: BaseException | None) -> str: ...

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        driver: Any = self._kept.dialect.dbapi
        try:
            yield
        except (sa.exc.DBAPIError, driver.Error) as error:
            cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            what = str(cause).partition("\n")[0].rstrip(".")
            raise LedgerError(f"ledger={self.name!r}: {what}. {self._remedy(cause)}") from error
        except UnicodeDecodeError as error:
            # The driver may quote damaged bytes in its message and stumble over them itself.
            raise LedgerError(f"ledger={self.name!r}: is damaged. Restore it from a backup.") from error


class AllowingDatabase(Database):
    """A database that keeps the allowances of an `Addition`, for those who come next."""

    @abc.abstractmethod
    def append_allowed(self, account_id: int, event: str, body: str) -> int | None:
        """Add one record without a look at the history, durable on return, if an allowance for its event is left.

        Args:
            account_id: the account's row.
            event: the `event_key` of the record's event.
            body: the record's text.

        Returns:
            The record's number; None where nothing was written.
        """


def database_at(url_or_path: str | os.PathLike[str]) -> Database:
    """The database behind a path, a ``sqlite:///`` address or a ``postgresql://`` address; nothing is opened yet."""
    address = os.fspath(url_or_path)
    if address.startswith(("postgresql:", "postgresql+", "postgres:")):
        from tacit.ledger.postgres import PostgresDatabase

        return PostgresDatabase(address)
    from tacit.ledger.sqlite import SqliteDatabase

    return SqliteDatabase(address)


def _close_all() -> None:
    for database in list(_OPEN):
        database.close()


_OPEN: "weakref.WeakSet[Database]" = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close_all)
