"""Ledgers in a PostgreSQL database, for teams.

A reservation is durable before it returns, yet the account's lock is not held while the disk works: the transaction
commits to the log in memory, which orders it and lets the next writer in, and then waits until the log is flushed to
that point. The log is flushed in order, so whatever a writer has seen is on the disk before what it wrote; and many
writers wait for one flush.

While the lock is held, each further message to the server is time that all others wait. A record therefore takes two:
lock and read; write, commit and wait for the flush.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from tacit.core.errors import InputError, LedgerError, UnsupportedError
from tacit.ledger.database import LOCK_TIMEOUT_SECONDS, TAIL, Database, NextRecord, Tail

_REMEDIES = {
    "08": "Check the address and that the server runs.",
    "25": "The server is read-only: name the primary one.",
    "28": "Check the user and the password.",
    "3D": "Make the database first, with createdb.",
    "42501": "Ask for the right to read and add in these tables.",
    "53100": "The disk is full: free some space and try again.",
    "55": "Another process holds the ledger: wait for it and try again.",
    "57": "The server stops or restarts: try again.",
}
_CONNECTION_AGE_SECONDS = 300
_TABLE_LOCK = 0x7461636974  # "tacit"
_ACCOUNT_LOCKS = 0x74616369  # the first of a pair, the second is the account
_FLUSH = "SELECT set_config('synchronous_commit', 'on', true), pg_logical_emit_message(true, 'tacit', '')"

_PREPARE = f"""
    PREPARE tacit_tail(int, int) AS {TAIL.format(first="$1", account="$2")};
    PREPARE tacit_add(int, int, text, text) AS
        WITH moved AS (
            UPDATE accounts SET length = $2 + 1, head = $4 WHERE id = $1 AND length = $2 RETURNING id
        ) INSERT INTO history (account_id, number, body, hash) SELECT id, $2, $3, $4 FROM moved;
    PREPARE tacit_flush AS {_FLUSH}
"""
# What is read must be as new as the lock, which is what this level says: each statement sees what was committed before.
_LOCK_AND_READ = f"""
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SELECT pg_advisory_xact_lock({_ACCOUNT_LOCKS}, %(account)s);
    EXECUTE tacit_tail(%(first)s, %(account)s)
"""
_WRITE_AND_FLUSH = "EXECUTE tacit_add(%s, %s, %s, %s); COMMIT; EXECUTE tacit_flush"


class PostgresDatabase(Database):
    """One PostgreSQL database.

    A connection is kept for at most five minutes.

    Args:
        address: ``postgresql://USER:PASSWORD@HOST/DATABASE``. What is left out, libpq takes from its environment
            (``PGPASSWORD``, ``PGHOST``, ...).
    """

    def __init__(self, address: str) -> None:
        try:
            url = sa.make_url(address).set(drivername="postgresql+psycopg")
            engine = sa.create_engine(url, pool_size=1, max_overflow=-1, pool_recycle=_CONNECTION_AGE_SECONDS)
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                "ledger: PostgreSQL needs the package psycopg. Install it with `pip install 'tacit[postgres]'`."
            ) from error
        except (sa.exc.ArgumentError, ValueError) as error:
            raise InputError("ledger: is no database address. Give postgresql://USER@HOST/DATABASE.") from error
        super().__init__(url.set(drivername="postgresql").render_as_string(hide_password=True), engine)
        sa.event.listen(engine, "connect", _prepare_connection)

    def is_missing(self) -> bool:
        """Never: a database that is not there refuses the connection."""
        return False

    def prepare(self) -> None:
        """Nothing to do."""

    def lock_tables(self, connection: sa.Connection) -> None:
        """Wait until nobody else makes or changes tables."""
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_TABLE_LOCK})")

    def _reader(self) -> sa.Engine:
        return self._kept.execution_options(isolation_level="REPEATABLE READ")

    def _writer(self) -> sa.Engine:
        return self._kept

    def _append(self, pooled: sa.PoolProxiedConnection, account_id: int, first: int, next_record: NextRecord) -> None:
        from psycopg import ClientCursor  # it alone sends several statements in one message

        with _own_transactions(pooled) as driver, ClientCursor(driver) as cursor:
            if not pooled.info.get(_PREPARE):
                cursor.execute(_PREPARE)
                pooled.info[_PREPARE] = True
            cursor.execute(_LOCK_AND_READ, {"account": account_id, "first": first})
            while cursor.nextset():
                pass
            record = next_record(Tail.of_rows(cursor.fetchall()))
            cursor.execute(_WRITE_AND_FLUSH, (account_id, *record))
            if cursor.rowcount != 1:
                raise LedgerError(
                    f"ledger={self.name!r}: another program adds to the history and does not lock it. "
                    "Nothing was spent. Use one version of tacit everywhere."
                )

    def _make_durable(self) -> None:
        with self._kept.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(_FLUSH)

    def _remedy(self, cause: BaseException | None) -> str:
        state = str(getattr(cause, "sqlstate", None) or "08")
        return _REMEDIES.get(state) or _REMEDIES.get(state[:2], "Check the server and its log.")


@contextlib.contextmanager
def _own_transactions(pooled: sa.PoolProxiedConnection) -> Iterator[Any]:
    """The driver's connection, which begins no transaction by itself; what was not committed is undone."""
    driver: Any = pooled.driver_connection
    driver.autocommit = True
    try:
        yield driver
    finally:
        if driver.closed:
            pooled.invalidate()
        else:
            driver.rollback()
            driver.autocommit = False


def _prepare_connection(connection: Any, _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW fsync")
        if cursor.fetchone() != ("on",):
            raise LedgerError("ledger: the server runs with fsync=off, and would forget spending. Switch it on.")
        cursor.execute("SET synchronous_commit = off")  # `_make_durable` waits, without the lock
        cursor.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_SECONDS:.0f}s'")
    connection.commit()
