"""The connection to a ledger's database: the only file that knows which database it is.

Every write is one transaction that holds the write lock from its first statement (``BEGIN IMMEDIATE``), so
that what it read is still true when it writes, and that has reached the disk when it returns (write-ahead
log, ``synchronous=FULL``).
"""

import contextlib
import datetime
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from tacit.core.errors import InputError, LedgerError, UnsupportedError

_SQLITE_PREFIX = "sqlite:///"
# A reservation computes an epsilon under the lock; several runs may queue behind one another.
_LOCK_TIMEOUT_SECONDS = 120.0

_REMEDIES = {
    "SQLITE_CANTOPEN": "Check that the folder exists and that you may write to it.",
    "SQLITE_READONLY": "Check that you may write to the file and to its folder.",
    "SQLITE_NOTADB": "It is not a ledger: name another path, or make one with `tacit ledger create`.",
    "SQLITE_CORRUPT": "The file is damaged: restore it from a backup.",
    "SQLITE_BUSY": "Another process holds the ledger: wait for it and try again.",
    "SQLITE_FULL": "The disk is full: free some space and try again.",
}


def locate(url_or_path: str | os.PathLike[str]) -> Path:
    """The file behind a path or a ``sqlite:///`` address.

    A database in memory is refused because it does not outlive a crash, and every other address because it is
    unknown.
    """
    address = os.fspath(url_or_path)
    path = address.removeprefix(_SQLITE_PREFIX)
    if "://" in path:
        raise UnsupportedError(
            f"ledger={address!r}: only SQLite ledgers are supported. Give a path or {_SQLITE_PREFIX}PATH."
        )
    if path in ("", ":memory:"):
        raise InputError(f"ledger={address!r}: a ledger must outlive the process. Give the path of a file.")
    return Path(path)


def now() -> str:
    """The time in UTC as ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Database:
    """Transactions on one SQLite file; every failure of the database becomes a `LedgerError` with a remedy.

    No connection is kept open between transactions, so a `Database` may be used from several threads and
    after a fork.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)),
            poolclass=NullPool,
            connect_args={"timeout": _LOCK_TIMEOUT_SECONDS},
        )
        sa.event.listen(self._engine, "connect", _prepare_connection)
        sa.event.listen(self._engine, "begin", _begin)

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that sees one consistent state."""
        with _translated_errors(self.path), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that is alone in writing; durable once the block ends, undone if the block raises."""
        with _translated_errors(self.path), self._writer().begin() as connection:
            yield connection

    def keep_write_ahead_log(self) -> None:
        """Switch a new file to write-ahead logging; the file remembers it."""
        with _translated_errors(self.path), contextlib.closing(self._engine.raw_connection()) as connection:
            connection.cursor().execute("PRAGMA journal_mode = WAL")

    def _writer(self) -> sa.Engine:
        return self._engine.execution_options(tacit_begin="BEGIN IMMEDIATE")


def _prepare_connection(connection: sqlite3.Connection, _record: object) -> None:
    # The driver must not open transactions by itself: `_begin` decides when and which.
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: sa.Connection) -> None:
    options: Any = connection.get_execution_options()
    connection.exec_driver_sql(options.get("tacit_begin", "BEGIN"))


@contextlib.contextmanager
def _translated_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        # Extended codes such as SQLITE_READONLY_DIRECTORY begin with the code that they refine.
        code = "_".join(str(getattr(cause, "sqlite_errorname", "")).split("_")[:2])
        remedy = _REMEDIES.get(code, "Check the file and its disk.")
        raise LedgerError(f"ledger={str(path)!r}: {cause}. {remedy}") from error
