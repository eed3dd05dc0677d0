"""A ledger: the database in which data sets have accounts."""

import os
from typing import Self

import sqlalchemy as sa

from tacit.core.errors import InputError, LedgerError
from tacit.core.privacy import Budget, Neighbours, PrivacyUnit
from tacit.ledger.account import Account
from tacit.ledger.database import Database, database_at, now
from tacit.ledger.history import History, broken
from tacit.ledger.journal import Journal, write_record
from tacit.ledger.migrations import upgrade
from tacit.ledger.schema import SCHEMA_VERSION, accounts, history, ledger_table, metadata
from tacit.ledger.terms import Rule, Terms


class Ledger:
    """Accounts of data sets in one SQLite file or one PostgreSQL database, safe for several processes at once.

    Every reservation and every mark is on the disk before the call returns. A file must lie on a local
    disk: SQLite's locks and write-ahead log are not reliable on network file systems.

    Args:
        database: made by `Ledger.create` or `Ledger.open`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def __repr__(self) -> str:
        return f"Ledger({self._database.name!r})"

    @classmethod
    def create(
        cls,
        url_or_path: str | os.PathLike[str],
        *,
        dataset: str,
        budget: Budget | None,
        unit: PrivacyUnit | None = None,
        neighbours: Neighbours = Neighbours.ADD_REMOVE,
        rule: Rule = Rule.FIXED_PLAN,
    ) -> Self:
        """Open an account, in a new file or in a ledger that exists. The same account again changes nothing.

        Args:
            url_or_path: a path or a ``sqlite:///`` address, whose folder must exist; or the
                ``postgresql://USER@HOST/DATABASE`` address of a database that exists.
            dataset: the name of the data set.
            budget: the limit, or None to keep a history without a limit.
            unit: what the budget protects; one example unless given.
            neighbours: the relation that the budget speaks of.
            rule: how spending is added up. `Rule.FIXED_PLAN` is the tighter one and is proven for runs that were all
                declared before the first result was seen; take `Rule.ADAPTIVE` where runs are planned from results.

        Raises:
            InputError: the name is empty or no text that every database keeps; or the data set has an account with
                other terms. Budgets are not changed by creating them again.
            LedgerError: the file is no ledger, comes from a newer tacit, or cannot be written.
        """
        _check_name(dataset)
        terms = Terms(dataset, budget, PrivacyUnit() if unit is None else unit, neighbours, rule)
        database = database_at(url_or_path)
        _prepare(database)
        with database.write() as connection:
            database.lock_tables(connection)
            if connection.execute(sa.select(accounts.c.id).where(accounts.c.dataset == dataset)).first() is None:
                _open_account(connection, terms)
                return cls(database)
        _require_same(terms, cls(database).account(dataset).terms)
        return cls(database)

    @classmethod
    def open(cls, url_or_path: str | os.PathLike[str]) -> Self:
        """Open a ledger that exists.

        Raises:
            LedgerError: there is no such file, it is no ledger, it comes from a newer tacit, or it cannot be
            read.
        """
        database = database_at(url_or_path)
        _bring_up_to_date(database)
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
        first = sa.select(accounts.c.id, accounts.c.dataset, history.c.number, history.c.body, history.c.hash)
        query = first.outerjoin_from(
            accounts, history, (history.c.account_id == accounts.c.id) & (history.c.number == 0)
        )
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(accounts.c.id)).all()
        return [self._account(*row) for row in rows]

    def _account(self, account_id: int, dataset: str, number: int | None, body: str, stored_hash: str) -> Account:
        opening = History()
        if number is not None:
            opening.replay(number, body, stored_hash)
        if number is None or opening.terms.dataset != dataset:
            raise broken(f"the account of {dataset!r} has no first record of its own")
        return Account(opening.terms, opening.opened, Journal(self._database, account_id))


def _check_name(dataset: str) -> None:
    if not dataset:
        raise InputError("dataset='': an account needs a name. Give the data set's name.")
    # PostgreSQL keeps no null character, and neither database the surrogates that Python makes of stray bytes.
    if "\0" in dataset or any("\ud800" <= character <= "\udfff" for character in dataset):
        raise InputError(f"dataset={dataset!r}: the name is no plain text in UTF-8. Give another name.")


def _open_account(connection: sa.Connection, terms: Terms) -> None:
    row = accounts.insert().values(dataset=terms.dataset, length=0, head="").returning(accounts.c.id)
    account_id = connection.execute(row).scalar_one()
    record = {"kind": "opened", **terms.to_dict(), "created": now()}
    History().encode(record)  # or one account would spoil the ledger for all
    write_record(connection, account_id, 0, "", record)


def _require_same(wanted: Terms, existing: Terms) -> None:
    was = existing.to_dict()
    if differing := [key for key, value in wanted.to_dict().items() if was[key] != value]:
        values = ", ".join(f"{key}={was[key]!r}" for key in differing)
        raise InputError(
            f"dataset={wanted.dataset!r}: its account has other terms ({values}). "
            "Use the account as it is, or another ledger."
        )


def _prepare(database: Database) -> None:
    """Make the tables of a ledger where there is nothing; what holds something else is left untouched."""
    if database.is_missing() or _is_empty(database):
        database.prepare()
        with database.write() as connection:
            database.lock_tables(connection)
            metadata.create_all(connection)
            if connection.execute(sa.select(ledger_table)).first() is None:
                connection.execute(ledger_table.insert().values(schema_version=SCHEMA_VERSION, created=now()))
    _bring_up_to_date(database)


def _is_empty(database: Database) -> bool:
    with database.read() as connection:
        return not sa.inspect(connection).get_table_names()


def _bring_up_to_date(database: Database) -> None:
    """Refuse what is no ledger or from a newer tacit, and bring an older form to this one in one transaction."""
    with database.read() as connection:
        version = _version(database, connection)
    if version < SCHEMA_VERSION:
        with database.write() as connection:
            database.lock_tables(connection)
            upgrade(connection, _version(database, connection))


def _version(database: Database, connection: sa.Connection) -> int:
    if not sa.inspect(connection).has_table(ledger_table.name):
        raise LedgerError(
            f"ledger={database.name!r}: it is not a ledger. Name another place, or make one with `tacit ledger create`."
        )
    version = connection.execute(sa.select(ledger_table.c.schema_version)).scalar()
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        raise LedgerError(
            f"ledger={database.name!r}: its form is version {version}, and this tacit knows 1 to {SCHEMA_VERSION}. "
            "Install a newer tacit."
        )
    return version
