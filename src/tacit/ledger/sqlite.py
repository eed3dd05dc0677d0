"""Ledgers in one SQLite file, in write-ahead mode: the default.

A write holds the write lock from its first statement (``BEGIN IMMEDIATE``) and has reached the disk when it returns.
The lock is not held while the disk works: the transaction is committed to the log, which orders it and lets the next
writer in, and then the log is synchronised; many writers share one synchronisation. The log is read back in order up to
the first frame that is damaged, so whatever a writer has seen is on the disk before what it wrote. As SQLite does,
this assumes that a write which fails leaves the bytes before it alone. If the log was moved into the database in
between, SQLite has synchronised both. Where this is not known to hold (elsewhere than on Linux) SQLite synchronises
under the lock (``synchronous=FULL``).

The file must lie on a local disk: SQLite's locks are not reliable on network file systems.
"""

import contextlib
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from tacit.core.errors import InputError, LedgerError, UnsupportedError
from tacit.ledger.database import LOCK_TIMEOUT_SECONDS, TAIL, Database, NextRecord, Tail

_PREFIX = "sqlite:///"
_TAIL = TAIL.format(first=":first", account=":account")
_MOVE = "UPDATE accounts SET length = :number + 1, head = :hash WHERE id = :account"
_ADD = "INSERT INTO history (account_id, number, body, hash) VALUES (:account, :number, :body, :hash)"
_SHARES_SYNCHRONISATION = sys.platform == "linux"
_PRIMARY = 0xFF  # the part of SQLite's error codes that says what kind of error it is
_PAUSE = 0.01  # seconds
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

    A writer keeps its connection, because closing the last one copies the log into the file. Before each write it looks
    whether the path still names the file that is open: one that was moved away or replaced is not written to where
    nobody looks.

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
        url, waiting = sa.URL.create("sqlite", database=path), {"timeout": LOCK_TIMEOUT_SECONDS}
        super().__init__(path, sa.create_engine(url, pool_size=1, max_overflow=-1, connect_args=waiting))
        self._engine = sa.create_engine(url, poolclass=NullPool, connect_args=waiting)
        self._kept_file: tuple[int, int] | None = None
        for engine in (self._engine, self._kept):
            sa.event.listen(engine, "connect", _prepare_connection)
            sa.event.listen(engine, "begin", _begin)
        self._writing = self._kept.execution_options(tacit_begin="BEGIN IMMEDIATE")

    def is_missing(self) -> bool:
        """Whether there is no file."""
        return not self.path.is_file()

    def prepare(self) -> None:
        """Switch a new file to write-ahead logging; the file remembers it."""
        self._require_no_lone_log()
        with self._translated_errors(), self._engine.connect() as connection:
            connection.exec_driver_sql("ROLLBACK")  # the mode cannot change within a transaction
            _switch_to_log(connection)
            connection.exec_driver_sql("BEGIN")

    def lock_tables(self, connection: sa.Connection) -> None:
        """Nothing to do: a write is alone."""

    def _reader(self) -> sa.Engine:
        self._require_file()
        return self._engine

    def _writer(self) -> sa.Engine:
        self._require_file()
        file = _identity(self.path)
        if file != self._kept_file:
            self.close()
            self._kept_file = file
        return self._writing

    def _require_file(self) -> None:
        """SQLite would make an empty file, and delete the log that it finds beside it."""
        if self.is_missing():
            raise LedgerError(f"ledger={self.name!r}: there is no such file. Make one with `tacit ledger create`.")
        self._require_no_lone_log()

    def _require_no_lone_log(self) -> None:
        """A log belongs to a file with content: without it SQLite would take what was spent for nothing."""
        # The log first: whoever makes a ledger fills the file before there is a log.
        if _size(self._log()) and not _size(self.path):
            raise LedgerError(
                f"ledger={self.name!r}: the file is missing or empty and its log is not. "
                "Restore it from a backup, with the log."
            )

    def _log(self) -> Path:
        """Where SQLite keeps the log: beside the file itself, also where the path is a link to it."""
        return Path(f"{os.path.realpath(self.path)}-wal")

    def _following(self, pooled: sa.PoolProxiedConnection, account_id: int, first: int) -> Tail:
        with contextlib.closing(pooled):
            driver: Any = pooled.driver_connection
            return _tail(driver, account_id, first)

    def _append(self, pooled: sa.PoolProxiedConnection, account_id: int, first: int, next_record: NextRecord) -> None:
        with contextlib.closing(pooled):  # which undoes what was not committed
            driver: Any = pooled.driver_connection
            driver.execute("BEGIN IMMEDIATE")
            number, body, link = next_record(_tail(driver, account_id, first)).record
            values = {"account": account_id, "number": number, "body": body, "hash": link}
            driver.execute(_MOVE, values)
            driver.execute(_ADD, values)
            driver.commit()
        self._make_durable()

    def _make_durable(self) -> None:
        if not _SHARES_SYNCHRONISATION:
            return
        try:
            log = os.open(self._log(), os.O_RDONLY)
        except FileNotFoundError:
            return  # the log was moved into the database, which SQLite has synchronised
        try:
            os.fdatasync(log)
        except OSError as error:
            raise LedgerError(f"ledger={self.name!r}: {error.strerror}. Check the disk.") from error
        finally:
            os.close(log)

    def _remedy(self, cause: BaseException | None) -> str:
        # Extended codes such as SQLITE_READONLY_DIRECTORY begin with the code that they refine.
        code = "_".join(str(getattr(cause, "sqlite_errorname", "")).split("_")[:2])
        return _REMEDIES.get(code, "Check the file and its disk.")


def _prepare_connection(connection: sqlite3.Connection, _record: object) -> None:
    # The driver must not open transactions by itself: `_begin` decides when and which.
    connection.isolation_level = None
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if _SHARES_SYNCHRONISATION else 'FULL'}")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: sa.Connection) -> None:
    options: Any = connection.get_execution_options()
    connection.exec_driver_sql(options.get("tacit_begin", "BEGIN"))


def _tail(connection: sqlite3.Connection, account_id: int, first: int) -> Tail:
    return Tail.of_rows(connection.execute(_TAIL, {"first": first, "account": account_id}).fetchall())


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _switch_to_log(connection: sa.Connection) -> None:
    """Write-ahead logging. Where several processes switch at once, SQLite refuses some of them without waiting."""
    ends = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        try:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        except sa.exc.OperationalError as error:
            code = getattr(error.orig, "sqlite_errorcode", 0)
            if code & _PRIMARY != sqlite3.SQLITE_BUSY or time.monotonic() > ends:
                raise
            time.sleep(_PAUSE)
        else:
            return
