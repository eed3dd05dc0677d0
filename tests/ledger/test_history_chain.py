"""A history that was edited is seen and refused; older forms are brought up to date; faults spend nothing."""

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
import sqlalchemy as sa

from tacit.core import Budget, BudgetExceededError, LedgerError
from tacit.ledger import Account, EntryState, Ledger, Reservation, Rule, journal, repeated
from tacit.ledger.database import database_at
from tacit.ledger.history import link
from tacit.ledger.schema import accounts
from tacit.ledger.spending import encode_event

Reserve = Callable[..., Reservation]
STEP = dp_accounting.GaussianDpEvent(10.0)


def change(address: str, *statements: str) -> None:
    """Edits the database behind the ledger's back."""
    with database_at(address).write() as connection:
        for statement in statements:
            assert connection.execute(sa.text(statement)).rowcount != 0


EDITS = {
    "a cheaper event": "UPDATE history SET body = replace(body, '10.0', '99.0') WHERE number = 1",
    "another run": "UPDATE history SET body = replace(body, 'first', 'other') WHERE number = 1",
    "a larger budget": "UPDATE history SET body = replace(body, '3.0', '9.0') WHERE number = 0",
    "another hash": "UPDATE history SET hash = '00' WHERE number = 2",
    "a record less": "DELETE FROM history WHERE number = 2",
    "the last record less": "DELETE FROM history WHERE number = 3",
    "all records less": "DELETE FROM history",
    "an older head": "UPDATE accounts SET length = 3, head = (SELECT hash FROM history WHERE number = 2)",
    "no account": "DELETE FROM history; DELETE FROM accounts",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_seen_and_nothing_can_be_spent(address: str, account: Account, reserve: Reserve, edit: str) -> None:
    with reserve(5, run="first") as reservation:
        reservation.before_noise(0)
    change(address, *EDITS[edit].split("; "))
    with pytest.raises(LedgerError, match=r"tampered with or damaged.*Restore") as caught:
        account.entries()
    assert "\n" not in str(caught.value)
    for action in (Account.spent, Account.to_dict, Account.odometer):
        with pytest.raises(LedgerError, match="tampered"):
            action(account)

    def spend() -> None:
        fresh = Ledger.open(address).account("digits")
        fresh.reserve(repeated(STEP), 1, run="r", neighbours=fresh.neighbours, unit=fresh.unit)

    with pytest.raises((LedgerError, ValueError), match=r"tampered|no such account"):
        spend()


def test_records_in_another_order_are_seen(address: str, account: Account, reserve: Reserve) -> None:
    reserve(5)
    reserve(6)
    change(
        address,
        "UPDATE history SET number = 9 WHERE number = 1",
        "UPDATE history SET number = 1 WHERE number = 2",
        "UPDATE history SET number = 2 WHERE number = 9",
    )
    with pytest.raises(LedgerError, match="record 1 was changed"):
        account.entries()


def test_a_forged_record_needs_every_later_hash(address: str, account: Account, reserve: Reserve) -> None:
    """With the right hash of its own, a record still breaks the next one's."""
    reserve(5, run="first")
    reserve(5)
    with database_at(address).read() as connection:
        opened, body = connection.execute(sa.text("SELECT hash, body FROM history WHERE number < 2 ORDER BY number"))
        previous, text = opened[0], body[1].replace("first", "other")
    change(address, f"UPDATE history SET body = '{text}', hash = '{link(previous, 1, text)}' WHERE number = 1")
    with pytest.raises(LedgerError, match="record 2 was changed"):
        account.entries()


def test_the_head_is_the_hash_of_all_before(account: Account, reserve: Reserve) -> None:
    heads = {account.to_dict()["head"]}
    for _ in range(3):
        reserve(1)
        heads.add(account.to_dict()["head"])
    assert len(heads) == 4
    assert account.to_dict()["records"] == 4


def test_a_writer_that_knows_the_past_goes_on_reading_only_what_is_new(account: Account, reserve: Reserve) -> None:
    reserve(1)
    other = Ledger.open(_address(account)).account("digits")
    for _ in range(3):
        other.reserve(repeated(STEP), 1, run="other", neighbours=other.neighbours, unit=other.unit)
    reserve(1)
    assert [entry.run for entry in account.entries()] == ["run", "other", "other", "other", "run"]


def _address(account: Account) -> str:
    return account._journal.database.name


OLD = Path(__file__).with_name("ledger_v1.sql")


@pytest.fixture
def old(path: Path) -> Path:
    """A ledger as version 1 wrote it: one run committed early, one released, one open, on two accounts."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD.read_text(encoding="utf-8"))
    return path


def test_an_older_ledger_is_brought_up_to_date(old: Path) -> None:
    ledger = Ledger.open(old)
    digits, people = ledger.accounts()
    assert (digits.budget, digits.rule, digits.created) == (
        Budget(3.0, 1e-5),
        Rule.FIXED_PLAN,
        "2025-01-01T00:00:00+00:00",
    )
    assert (people.unit.name, people.unit.max_examples, people.budget) == ("person", 3, None)
    committed, released, still_open = digits.entries()
    assert (committed.state, committed.steps_charged, committed.steps_drawn) == (EntryState.COMMITTED, 4, 5)
    assert committed.event == dp_accounting.SelfComposedDpEvent(STEP, 4)
    assert (released.state, released.steps_charged) == (EntryState.RELEASED, 0)
    assert (still_open.state, still_open.steps_charged, still_open.run) == (EntryState.RESERVED, 30, "open")
    assert len(people.entries()) == 1
    terms = {"neighbours": digits.neighbours, "unit": digits.unit}
    with pytest.raises(BudgetExceededError):
        digits.reserve(repeated(STEP), 18, run="r", **terms)  # 4 + 30 steps are spent, 51 fit
    digits.reserve(repeated(STEP), 17, run="r", **terms)
    assert Ledger.open(old).account("digits").to_dict()["records"] == 1 + 3 + 2 + 1 + 1


def test_a_ledger_without_allowances_is_brought_up_to_date(account: Account, reserve: Reserve) -> None:
    for _ in range(3):
        reserve(1)
    before = account.entries()
    with account._journal.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE allowances")
        connection.exec_driver_sql("ALTER TABLE accounts DROP COLUMN allowed_length")
        connection.exec_driver_sql("UPDATE tacit_ledger SET schema_version = 2")
    ledger = Ledger.open(_address(account))
    with ledger._database.read() as connection:
        assert connection.execute(sa.select(accounts.c.allowed_length)).scalars().all() == [0]
    upgraded = ledger.account("digits")
    for _ in range(3):
        upgraded.reserve(repeated(STEP), 1, run="new", neighbours=upgraded.neighbours, unit=upgraded.unit)
    assert upgraded.entries()[:3] == before
    assert len(upgraded.entries()) == 6


def test_an_upgrade_that_fails_leaves_the_old_ledger(old: Path) -> None:
    with contextlib.closing(sqlite3.connect(old)) as connection:
        connection.execute("UPDATE accounts SET neighbours = 'nobody' WHERE dataset = 'people'")
        connection.commit()
        before = list(connection.iterdump())
    with pytest.raises(LedgerError, match="terms of the account of 'people' cannot be read"):
        Ledger.open(old)
    with contextlib.closing(sqlite3.connect(old)) as connection:
        assert list(connection.iterdump()) == before


def test_a_clock_that_was_moved_back_is_refused(
    account: Account, reserve: Reserve, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_one = reserve(1)
    before = account.to_dict()["head"]
    with monkeypatch.context() as patch:
        patch.setattr(journal, "now", lambda: "2001-01-01T00:00:00+00:00")
        for action in (lambda: reserve(1), lambda: open_one.before_noise(0), open_one.commit):
            with pytest.raises(LedgerError, match=r"the clock says 2001.*Nothing was spent\. Set the clock"):
                action()
    assert account.to_dict()["head"] == before
    assert open_one.steps_begun == 0
    open_one.before_noise(0)


def test_a_full_disk_is_refused_and_spends_nothing(path: Path) -> None:
    account = Ledger.create(path, dataset="digits", budget=Budget(3.0, 1e-5)).account("digits")
    terms: dict[str, Any] = {"neighbours": account.neighbours, "unit": account.unit}
    reservation = account.reserve(repeated(STEP), 5, run="r", **terms)
    before = account.to_dict()
    database: Any = account._journal.database

    @sa.event.listens_for(database._kept, "checkout")
    def fill_the_disk(connection: sqlite3.Connection, *_: object) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(LedgerError, match=r"full\. The disk is full: free some space"):
        account.reserve(repeated(STEP), 5, run="r" * 100_000, **terms)
    assert account.to_dict() == before
    sa.event.remove(database._kept, "checkout", fill_the_disk)
    database.close()
    reservation.before_noise(0)
    account.reserve(repeated(STEP), 5, run="r" * 100_000, **terms)


def test_the_adaptive_rule_decides_by_the_filter(address: str) -> None:
    budget = Budget(3.0, 1e-5)
    fixed = Ledger.create(address, dataset="fixed", budget=budget).account("fixed")
    chosen = Ledger.create(address, dataset="chosen", budget=budget, rule=Rule.ADAPTIVE).account("chosen")
    terms: dict[str, Any] = {"neighbours": fixed.neighbours, "unit": fixed.unit}
    for account in (fixed, chosen):
        account.reserve(repeated(STEP), 40, run="r", **terms)
    fixed.reserve(repeated(STEP), 8, run="r", **terms)
    with pytest.raises(BudgetExceededError, match="Nothing was spent"):
        chosen.reserve(repeated(STEP), 8, run="r", **terms)
    with pytest.raises(BudgetExceededError):
        chosen.require(dp_accounting.SelfComposedDpEvent(STEP, 8), **terms)
    chosen.reserve(repeated(STEP), 1, run="r", **terms)
    facts = json.loads(json.dumps(chosen.to_dict()))
    assert facts["rule"] == "adaptive"
    assert facts["spent"]["epsilon"] == facts["rules"]["adaptive"]["spent"] == chosen.spent()
    assert facts["rules"]["fixed-plan"]["spent"] < chosen.spent() <= 3.0 < facts["odometer"]["epsilon"]
    assert facts["rules"]["fixed-plan"]["remaining"] > facts["rules"]["adaptive"]["remaining"] > 0


def test_an_event_that_only_loss_distributions_bound_has_no_place_under_the_filter(address: str) -> None:
    event = dp_accounting.dp_event.MixtureOfGaussiansDpEvent(5.0, [1.0], [1.0])
    fixed = Ledger.create(address, dataset="fixed", budget=Budget(3.0, 1e-5)).account("fixed")
    fixed.reserve(repeated(event), 1, run="r", neighbours=fixed.neighbours, unit=fixed.unit)
    facts = fixed.to_dict()
    assert facts["rules"]["adaptive"] == {"spent": None, "remaining": 0.0}
    assert facts["odometer"]["epsilon"] is None
    assert facts["spent"]["epsilon"] > 0


def test_many_small_reservations_stop_where_one_large_one_would(account: Account, reserve: Reserve) -> None:
    """What is remembered to fit never lets more in: 51 steps fit, in whatever pieces."""
    for _ in range(51):
        reserve(1)
    with pytest.raises(BudgetExceededError):
        reserve(1)
    assert len(account.entries()) == 51
    assert account.spent() <= 3.0
    assert set(account._journal.read().counted) == {encode_event(dp_accounting.SelfComposedDpEvent(STEP, 1))}
