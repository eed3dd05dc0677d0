"""Older forms of a ledger, brought to the present one. Each step runs in the transaction of its caller.

Version 1 kept reservations and what became of them in two tables without hashes. Its accounts were of the fixed-plan
rule. Version 2 had no allowances. A process that opened the ledger as version 2 may live on and add to it: it cannot
withdraw allowances, but moves only the length of an account, and they hold no longer (see `tacit.ledger.schema`).
"""

from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from tacit.core.errors import InputError
from tacit.core.privacy import Budget, Neighbours, PrivacyUnit
from tacit.ledger.history import broken
from tacit.ledger.journal import Record, write_record
from tacit.ledger.schema import SCHEMA_VERSION, accounts, ledger_table, metadata
from tacit.ledger.terms import Rule, Terms


def upgrade(connection: sa.Connection, version: int) -> None:
    """Bring a ledger of an older version to `SCHEMA_VERSION`, or raise and leave it as it was."""
    for step in range(version, SCHEMA_VERSION):
        _STEPS[step](connection)
    connection.execute(ledger_table.update().values(schema_version=SCHEMA_VERSION))


def _chain_the_history(connection: sa.Connection) -> None:
    old = {name: _rows(connection, name) for name in ("accounts", "reservations", "records")}
    for name in ("records", "reservations", "accounts"):
        connection.exec_driver_sql(f"DROP TABLE {name}")
    metadata.create_all(connection)
    for account in old["accounts"]:
        connection.execute(accounts.insert().values(id=account.id, dataset=account.dataset, length=0, head=""))
        reservations = [row for row in old["reservations"] if row.account_id == account.id]
        head = ""
        for number, record in enumerate(_records(account, reservations, old["records"])):
            head = write_record(connection, account.id, number, head, record)


def _keep_allowances(connection: sa.Connection) -> None:
    metadata.create_all(connection)
    column = accounts.c.allowed_length  # is there already where the step from version 1 made the present tables
    if column.name not in {found["name"] for found in sa.inspect(connection).get_columns(accounts.name)}:
        definition = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {accounts.name} ADD COLUMN {definition}")


def _rows(connection: sa.Connection, table: str) -> list[Any]:
    return list(connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY id").all())


def _records(account: Any, reservations: list[Any], later: list[Any]) -> Iterator[Record]:
    """The account's records in an order that can be replayed: each reservation with what became of it."""
    yield {"kind": "opened", **_terms(account).to_dict(), "created": account.created}
    number = 1
    for row in reservations:
        reservation = number
        yield {
            "kind": "reserved",
            **{"run": row.run, "note": row.note, "steps": row.steps, "event": row.event, "created": row.created},
        }
        number += 1
        for record in (record for record in later if record.reservation_id == row.id):
            values = {"kind": record.kind, "reservation": reservation, "created": record.created}
            steps = {} if record.kind == "released" else {"steps": record.steps}
            event = {"event": record.event} if record.kind == "committed" else {}
            yield {**values, **steps, **event}
            number += 1


def _terms(account: Any) -> Terms:
    try:
        return Terms(
            dataset=account.dataset,
            budget=None if account.epsilon is None else Budget(account.epsilon, account.delta),
            unit=PrivacyUnit(account.unit_name, account.unit_max_examples),
            neighbours=Neighbours(account.neighbours),
            rule=Rule.FIXED_PLAN,
        )
    except (InputError, ValueError, TypeError) as error:
        raise broken(f"the terms of the account of {account.dataset!r} cannot be read") from error


_STEPS: dict[int, Callable[[sa.Connection], None]] = {1: _chain_the_history, 2: _keep_allowances}
