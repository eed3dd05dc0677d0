"""Ledgers in a PostgreSQL database, for teams.

A reservation is durable before it returns, yet the account's lock is not held while the disk works: the transaction
commits to the log in memory, which orders it and lets the next writer in, and then waits until the log is flushed to
that point. The log is flushed in order, so whatever a writer has seen is on the disk before what it wrote; and many
writers wait for one flush.

While the lock is held, each further message to the server is time that all others wait. A record therefore takes two:
lock and read; write, commit and wait for the flush. By an allowance it takes one, and the lock waits for no process.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from tacit.core.errors import InputError, LedgerError, UnsupportedError
from tacit.ledger.database import LOCK_TIMEOUT_SECONDS, TAIL, AllowingDatabase, NextRecord, Tail

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

# As `tacit.ledger.history.link` computes it.
_LINK = "encode(sha256(convert_to(head || ' ' || length || ' ' || $3, 'UTF8')), 'hex')"
# An older tacit may not take the lock. Whether it has moved the account is therefore asked where the account is
# written: there PostgreSQL waits for its transaction and looks again.
_PREPARE = f"""
    PREPARE tacit_tail(int, int) AS {TAIL.format(first="$1", account="$2")};
    PREPARE tacit_add(int, int, text, text) AS
        WITH moved AS (
            UPDATE accounts SET length = $2 + 1, head = $4, allowed_length = allowed_length + 1
            WHERE id = $1 AND length = $2 RETURNING id
        ) INSERT INTO history (account_id, number, body, hash) SELECT id, $2, $3, $4 FROM moved;
    PREPARE tacit_withdraw(int) AS DELETE FROM allowances WHERE account_id = $1;
    PREPARE tacit_allow(int, text, json) AS
        WITH added AS (
            UPDATE accounts SET allowed_length = length WHERE id = $1 AND head = $2 RETURNING id
        ) INSERT INTO allowances (account_id, event, remaining)
        SELECT id, key, value::int FROM added, json_each_text($3);
    PREPARE tacit_add_allowed(int, text, text) AS
        WITH allowed AS (
            UPDATE allowances SET remaining = remaining - 1
            WHERE account_id = $1 AND event = $2 AND remaining > 0 RETURNING account_id
        ), moved AS (
            UPDATE accounts SET length = length + 1, head = {_LINK}, allowed_length = allowed_length + 1 FROM allowed
            WHERE id = allowed.account_id AND length = allowed_length RETURNING id, length - 1 AS number, head
        ) INSERT INTO history (account_id, number, body, hash) SELECT id, number, $3, head FROM moved RETURNING number;
    PREPARE tacit_flush AS {_FLUSH}
"""
# What is read must be as new as the lock, which is what this level says: each statement sees what was committed before.
_LOCK = f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({_ACCOUNT_LOCKS}, %s)"
_END = "COMMIT; EXECUTE tacit_flush"
_READ = "EXECUTE tacit_tail(%s, %s)"
_LOCK_AND_READ = f"{_LOCK}; {_READ}"
_WRITE = "EXECUTE tacit_add(%s, %s, %s, %s)"
_ALLOW = "EXECUTE tacit_withdraw(%s); EXECUTE tacit_allow(%s, %s, %s)"
_WRITE_ALLOWED = f"{_LOCK}; EXECUTE tacit_add_allowed(%s, %s, %s); {_END}"


class PostgresDatabase(AllowingDatabase):
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

    def append_allowed(self, account_id: int, event: str, body: str) -> int | None:
        """Add one record by an allowance, in one message."""
        with self._translated_errors(), self._cursor(self._kept.raw_connection()) as cursor:
            cursor.execute(_WRITE_ALLOWED, (account_id, account_id, event, body))
            cursor.nextset()
            cursor.nextset()
            row = cursor.fetchone()
            return None if row is None else int(row[0])

    def _following(self, pooled: sa.PoolProxiedConnection, account_id: int, first: int) -> Tail:
        with self._cursor(pooled) as cursor:
            cursor.execute(_READ, (first, account_id))
            return Tail.of_rows(cursor.fetchall())

    def _append(self, pooled: sa.PoolProxiedConnection, account_id: int, first: int, next_record: NextRecord) -> None:
        with self._cursor(pooled) as cursor:
            cursor.execute(_LOCK_AND_READ, (account_id, first, account_id))
            while cursor.nextset():
                pass
            addition = next_record(Tail.of_rows(cursor.fetchall()))
            statements, values = [_WRITE], [account_id, *addition.record]
            if addition.allowances is not None:
                statements.append(_ALLOW)
                values += [account_id, account_id, addition.record[-1], json.dumps(dict(addition.allowances))]
            cursor.execute("; ".join([*statements, _END]), values)
            if cursor.rowcount != 1:
                raise LedgerError(
                    f"ledger={self.name!r}: another program adds to the history and does not lock it. "
                    "Nothing was spent. Use one version of tacit everywhere."
                )

    @contextlib.contextmanager
    def _cursor(self, pooled: sa.PoolProxiedConnection) -> Iterator[Any]:
        """A cursor whose every message may hold several statements, and which begins no transaction by itself.

        What was not committed is undone, and a connection that was lost is not kept.
        """
        from psycopg import ClientCursor

        driver: Any = pooled.driver_connection
        driver.autocommit = True
        try:
            with ClientCursor(driver) as cursor:
                if not pooled.info.get(_PREPARE):
                    cursor.execute(_PREPARE)
                    pooled.info[_PREPARE] = True
                yield cursor
        finally:
            if driver.closed:
                pooled.invalidate()
            else:
                driver.rollback()
                driver.autocommit = False
                pooled.close()

    def _make_durable(self) -> None:
        with self._kept.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(_FLUSH)

    def _remedy(self, cause: BaseException | None) -> str:
        state = str(getattr(cause, "sqlstate", None) or "08")
        return _REMEDIES.get(state) or _REMEDIES.get(state[:2], "Check the server and its log.")


def _prepare_connection(connection: Any, _record: object) -> None:
    connection.prepare_threshold = None  # else psycopg, after a rollback, drops our statements with its own
    with connection.cursor() as cursor:
        cursor.execute("SHOW fsync")
        if cursor.fetchone() != ("on",):
            raise LedgerError("ledger: the server runs with fsync=off, and would forget spending. Switch it on.")
        cursor.execute("SET synchronous_commit = off")  # `_make_durable` waits, without the lock
        cursor.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_SECONDS:.0f}s'")
    connection.commit()
