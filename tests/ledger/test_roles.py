"""A role with the rights that SECURITY.md names: enough to spend, and not to change the past."""

from collections.abc import Iterator

import dp_accounting
import pytest
import sqlalchemy as sa

from tacit.core import Budget, LedgerError
from tacit.ledger import Account, Ledger, Reservation, repeated

BUDGET = Budget(3.0, 1e-5)
STEP = dp_accounting.GaussianDpEvent(10.0)
GRANTS = """
    CREATE ROLE analyst LOGIN;
    GRANT USAGE ON SCHEMA public TO analyst;
    GRANT SELECT ON tacit_ledger TO analyst;
    GRANT SELECT, INSERT ON history TO analyst;
    GRANT SELECT, UPDATE ON accounts TO analyst;
    GRANT SELECT, INSERT, UPDATE, DELETE ON allowances TO analyst
"""


@pytest.fixture
def owned(postgres: str) -> Account:
    """The account, as the owner of the tables sees it."""
    return Ledger.create(postgres, dataset="digits", budget=BUDGET).account("digits")


@pytest.fixture
def analyst(postgres: str, owned: Account) -> Iterator[str]:
    """The ledger's address for an analyst."""
    with owned._journal.database.write() as connection:
        connection.exec_driver_sql(GRANTS)
    yield sa.make_url(postgres).set(username="analyst").render_as_string()
    with owned._journal.database.write() as connection:
        connection.exec_driver_sql("DROP OWNED BY analyst; DROP ROLE analyst")


def reserve(account: Account, steps: int = 1) -> Reservation:
    return account.reserve(repeated(STEP), steps, run="r", neighbours=account.neighbours, unit=account.unit)


def test_an_analyst_spends_and_settles(analyst: str) -> None:
    account = Ledger.open(analyst).account("digits")
    first, *_ = [reserve(account) for _ in range(12)]
    first.before_noise(0)
    first.commit()
    account.settle(reserve(account, 5).id)
    assert len(account.entries()) == 13
    assert Ledger.create(analyst, dataset="digits", budget=BUDGET).account("digits") == account


def test_an_analyst_opens_no_account_and_changes_no_record(analyst: str) -> None:
    with pytest.raises(LedgerError, match="permission denied"):
        Ledger.create(analyst, dataset="more", budget=BUDGET)
    database = Ledger.open(analyst)._database
    for statement in ("UPDATE history SET body = ''", "DELETE FROM history"):
        with pytest.raises(LedgerError, match="permission denied"), database.write() as connection:
            connection.exec_driver_sql(statement)


def test_raised_allowances_spend_above_the_budget_and_it_is_seen(analyst: str, owned: Account) -> None:
    """What the role cannot prevent is in the history."""
    account = Ledger.open(analyst).account("digits")
    for _ in range(6):
        reserve(account)
    with account._journal.database.write() as connection:
        connection.exec_driver_sql("UPDATE allowances SET remaining = 1000")
    for _ in range(60):
        reserve(account)
    assert owned.spent() > BUDGET.epsilon
    assert owned.to_dict()["spent"]["epsilon"] > BUDGET.epsilon
