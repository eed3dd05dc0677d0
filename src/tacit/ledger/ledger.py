"""A ledger: the file in which data sets have accounts."""

import os
from typing import Any, Self

import sqlalchemy as sa

from tacit.core.errors import InputError, LedgerError
from tacit.core.privacy import Budget, Neighbours, PrivacyUnit
from tacit.ledger.account import Account
from tacit.ledger.database import Database, locate, now
from tacit.ledger.schema import SCHEMA_VERSION, accounts, ledger_table, metadata


class Ledger:
    """Accounts of data sets in one SQLite file, safe for several processes at once.

    Every reservation and every mark is on the disk before the call returns. The file must lie on a local
    disk: SQLite's locks and write-ahead log are not reliable on network file systems.

    Args:
        database: made by `Ledger.create` or `Ledger.open`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def __repr__(self) -> str:
        return f"Ledger({str(self._database.path)!r})"

    @classmethod
    def create(
        cls,
        url_or_path: str | os.PathLike[str],
        *,
        dataset: str,
        budget: Budget | None,
        unit: PrivacyUnit | None = None,
        neighbours: Neighbours = Neighbours.ADD_REMOVE,
    ) -> Self:
        """Open an account, in a new file or in a ledger that exists. The same account again changes nothing.

        Args:
            url_or_path: a path or a ``sqlite:///`` address; its folder must exist.
            dataset: the name of the data set.
            budget: the limit, or None to keep a history without a limit.
            unit: what the budget protects; one example unless given.
            neighbours: the relation that the budget speaks of.

        Raises:
            InputError: the data set has an account with other terms. Budgets are not changed by creating them
            again.
            LedgerError: the file is no ledger, comes from a newer tacit, or cannot be written.
        """
        if not dataset:
            raise InputError("dataset='': an account needs a name. Give the data set's name.")
        database = _prepare_file(url_or_path)
        unit = PrivacyUnit() if unit is None else unit
        terms = {
            "epsilon": None if budget is None else float(budget.epsilon),
            "delta": None if budget is None else float(budget.delta),
            "neighbours": neighbours.value,
            "unit_name": unit.name,
            "unit_max_examples": unit.max_examples,
        }
        with database.write() as connection:
            existing = connection.execute(sa.select(accounts).where(accounts.c.dataset == dataset)).mappings().first()
            if existing is None:
                connection.execute(accounts.insert().values(dataset=dataset, created=now(), **terms))
            elif differing := [key for key, value in terms.items() if existing[key] != value]:
                was = ", ".join(f"{key}={existing[key]!r}" for key in differing)
                raise InputError(
                    f"dataset={dataset!r}: its account has other terms ({was}). "
                    "Use the account as it is, or another ledger."
                )
        return cls(database)

    @classmethod
    def open(cls, url_or_path: str | os.PathLike[str]) -> Self:
        """Open a ledger that exists.

        Raises:
            LedgerError: there is no such file, it is no ledger, it comes from a newer tacit, or it cannot be
            read.
        """
        database = Database(locate(url_or_path))
        _require_file(database)
        _check_version(database)
        return cls(database)

    def account(self, dataset: str) -> Account:
        """The account of a data set.

        Raises:
            InputError: there is none; the message lists those there are.
        """
        known = {account.dataset: account for account in self.accounts()}
        if dataset not in known:
            names = ", ".join(sorted(known)) or "none"
            raise InputError(
                f"dataset={dataset!r}: no such account (there are: {names}). Open one with `tacit ledger create`."
            )
        return known[dataset]

    def accounts(self) -> list[Account]:
        """Every account, in the order of opening."""
        with self._database.read() as connection:
            rows = connection.execute(sa.select(accounts).order_by(accounts.c.id)).all()
        return [self._account(row) for row in rows]

    def _account(self, row: Any) -> Account:
        return Account(
            dataset=row.dataset,
            budget=None if row.epsilon is None else Budget(row.epsilon, row.delta),
            unit=PrivacyUnit(row.unit_name, row.unit_max_examples),
            neighbours=Neighbours(row.neighbours),
            created=row.created,
            _id=row.id,
            _database=self._database,
        )


def _prepare_file(url_or_path: str | os.PathLike[str]) -> Database:
    """The ledger at a place, with its tables; a file that holds something else is left untouched."""
    database = Database(locate(url_or_path))
    if not _has_tables(database):
        database.keep_write_ahead_log()
        with database.write() as connection:
            metadata.create_all(connection)
            if connection.execute(sa.select(ledger_table)).first() is None:
                connection.execute(ledger_table.insert().values(schema_version=SCHEMA_VERSION, created=now()))
    _check_version(database)
    return database


def _has_tables(database: Database) -> bool:
    with database.read() as connection:
        return bool(sa.inspect(connection).get_table_names())


def _require_file(database: Database) -> None:
    if not database.path.is_file():
        raise LedgerError(f"ledger={str(database.path)!r}: there is no such file. Make one with `tacit ledger create`.")


def _check_version(database: Database) -> None:
    with database.read() as connection:
        if not sa.inspect(connection).has_table(ledger_table.name):
            raise LedgerError(
                f"ledger={str(database.path)!r}: the file is not a ledger. "
                "Name another path, or make one with `tacit ledger create`."
            )
        version = connection.execute(sa.select(ledger_table.c.schema_version)).scalar()
    if version is None or version > SCHEMA_VERSION:
        raise LedgerError(
            f"ledger={str(database.path)!r}: its form is version {version}, and this tacit knows up to "
            f"{SCHEMA_VERSION}. Install a newer tacit."
        )
