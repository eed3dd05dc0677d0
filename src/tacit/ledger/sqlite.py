"""Ledgers in one SQLite file, in write-ahead mode: the default.

A write holds the write lock from its first statement (``BEGIN IMMEDIATE``) and has reached the disk when it returns
(``synchronous=FULL``). The file must lie on a local disk: SQLite's locks are not reliable on network file systems.
"""

import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from tacit.core.errors import InputError, LedgerError, UnsupportedError
from tacit.ledger.database import LOCK_TIMEOUT_SECONDS, Database

_PREFIX = "sqlite:///"
_REMEDIES = {
    "SQLITE_CANTOPEN": "Check that the folder exists and that you may write to it.",
    "SQLITE_READONLY": "Check that you may write to the file and to its folder.",
    "SQLITE_NOTADB": "It is not a ledger: name another path, or make one with `tacit ledger create`.",
    "SQLITE_CORRUPT": "The file is damaged: restore it from a backup.",
    "SQLITE_BUSY": "Another process holds the ledger: wait for it and try again.",
    "SQLITE_FULL": "The disk is full: free some space and try again.",
}


class SqliteDatabase(Database):
    """One SQLite file.

    No connection is kept between transactions: a file that was moved away or replaced is noticed at the next one,
    rather than written to where nobody looks.

    Args:
        address: a path or ``sqlite:///`` and a path. A database in memory is refused because it does not outlive a
            crash.
    """

    def __init__(self, address: str) -> None:
        path = address.removeprefix(_PREFIX)
        if "://" in path:
            raise UnsupportedError(
                f"ledger={address!r}: only SQLite and PostgreSQL ledgers are supported. Give a path, {_PREFIX}PATH or "
                "postgresql://USER@HOST/DATABASE."
            )
        if path in ("", ":memory:"):
            raise InputError(f"ledger={address!r}: a ledger must outlive the process. Give the path of a file.")
        if "\0" in path:
            raise InputError(f"ledger={address!r}: a path holds no null character. Give the path of a file.")
        self.path = Path(path)
        self.name = str(self.path)
        self._engine = sa.create_engine(
            sa.URL.create("sqlite", database=self.name),
            poolclass=NullPool,
            connect_args={"timeout": LOCK_TIMEOUT_SECONDS},
        )
        sa.event.listen(self._engine, "connect", _prepare_connection)
        sa.event.listen(self._engine, "begin", _begin)

    def require_existing(self) -> None:
        """Refuse a path where there is no file."""
        if not self.path.is_file():
            raise LedgerError(f"ledger={self.name!r}: there is no such file. Make one with `tacit ledger create`.")

    def prepare(self) -> None:
        """Switch a new file to write-ahead logging; the file remembers it."""
        with self._translated_errors(), self._engine.connect() as connection:
            connection.exec_driver_sql("ROLLBACK")  # the mode cannot change within a transaction
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            connection.exec_driver_sql("BEGIN")

    def lock_tables(self, connection: sa.Connection) -> None:
        """Nothing to do: a write is alone."""

    def _reader(self) -> sa.Engine:
        return self._engine

    def _writer(self) -> sa.Engine:
        return self._engine.execution_options(tacit_begin="BEGIN IMMEDIATE")

    def _make_durable(self) -> None:
        """Nothing to do: a commit returns when it is on the disk."""

    def _remedy(self, cause: BaseException | None) -> str:
        # Extended codes such as SQLITE_READONLY_DIRECTORY begin with the code that they refine.
        code = "_".join(str(getattr(cause, "sqlite_errorname", "")).split("_")[:2])
        return _REMEDIES.get(code, "Check the file and its disk.")


def _prepare_connection(connection: sqlite3.Connection, _record: object) -> None:
    # The driver must not open transactions by itself: `_begin` decides when and which.
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: sa.Connection) -> None:
    options: Any = connection.get_execution_options()
    connection.exec_driver_sql(options.get("tacit_begin", "BEGIN"))
