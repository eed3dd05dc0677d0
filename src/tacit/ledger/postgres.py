"""Ledgers in a PostgreSQL database, for teams.

A reservation is durable before it returns, yet the account's lock is not held while the disk works: the transaction
commits to the log in memory, which orders it and lets the next writer in, and then waits until the log is flushed to
that point. The log is flushed in order, so whatever a writer has seen is on the disk before what it wrote; and many
writers wait for one flush.
"""

from typing import Any

import sqlalchemy as sa

from tacit.core.errors import InputError, LedgerError, UnsupportedError
from tacit.ledger.database import LOCK_TIMEOUT_SECONDS, Database

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
_FLUSH = "SELECT set_config('synchronous_commit', 'on', true), pg_logical_emit_message(true, 'tacit', '')"


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

    def _make_durable(self) -> None:
        with self._kept.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(_FLUSH)

    def _remedy(self, cause: BaseException | None) -> str:
        state = str(getattr(cause, "sqlstate", None) or "08")
        return _REMEDIES.get(state) or _REMEDIES.get(state[:2], "Check the server and its log.")


def _prepare_connection(connection: Any, _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW fsync")
        if cursor.fetchone() != ("on",):
            raise LedgerError("ledger: the server runs with fsync=off, and would forget spending. Switch it on.")
        cursor.execute("SET synchronous_commit = off")  # `_make_durable` waits, without the lock
        cursor.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_SECONDS:.0f}s'")
    connection.commit()
