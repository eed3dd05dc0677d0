"""Reservations by allowance on PostgreSQL: the same history, the same limit, and nothing remembered for too long."""

import concurrent.futures
import json
import time
from collections import Counter
from typing import Any

import dp_accounting
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.core import Budget, BudgetExceededError, LedgerError
from tacit.ledger import Account, Ledger, Reservation, Rule, journal, repeated, spending
from tacit.ledger.gate import GATES
from tacit.ledger.history import link

BUDGET = Budget(3.0, 1e-5)
STEP, OTHER = dp_accounting.GaussianDpEvent(10.0), dp_accounting.GaussianDpEvent(13.0)
RULES = st.sampled_from(Rule)


def reserve(account: Account, steps: int = 1, event: dp_accounting.DpEvent = STEP) -> Reservation:
    return account.reserve(repeated(event), steps, run="r", neighbours=account.neighbours, unit=account.unit)


def allowances(account: Account) -> Counter[str]:
    """What is left of each event, by its key."""
    with account._journal.database.read() as connection:
        rows = connection.execute(sa.text("SELECT event, remaining FROM allowances")).all()
    return Counter({event: remaining for event, remaining in rows})


@pytest.fixture
def by_allowance(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Histories are trusted for ever, and the numbers of the reservations by allowance are noted."""
    noted: list[int] = []
    real = journal.Journal.append_allowed

    def note(self: journal.Journal, record: journal.Record) -> int | None:
        number = real(self, record)
        noted.extend([] if number is None else [number])
        return number

    monkeypatch.setattr(journal, "_TRUST_SECONDS", 1e9)
    monkeypatch.setattr(journal.Journal, "append_allowed", note)
    return noted


def opened(address: str, rule: Rule = Rule.FIXED_PLAN, budget: Budget | None = BUDGET) -> Account:
    return Ledger.create(address, dataset=f"d-{rule.value}", budget=budget, rule=rule).account(f"d-{rule.value}")


def test_the_server_links_records_as_we_do(postgres: str, by_allowance: list[int]) -> None:
    account = opened(postgres)
    for _ in range(30):
        reserve(account)
    assert len(by_allowance) > 10
    tail = account._journal.database.tail(1)
    head = ""
    for number, body, stored in tail.records:
        head = link(head, number, body)
        assert stored == head
    assert (tail.length, tail.head) == (31, head)
    assert [entry.id for entry in account.entries()] == list(range(1, 31))


@pytest.mark.parametrize("rule", Rule)
def test_as_many_fit_as_one_at_a_time(postgres: str, by_allowance: list[int], rule: Rule) -> None:
    """Two processes take turns until both are refused."""
    one = opened(postgres, rule)
    two = Ledger.open(postgres).account(one.dataset)
    event = spending.encode_event(repeated(STEP)(1))
    fits = next(n for n in range(1, 100) if not GATES[rule](one.terms)._holds(Counter({event: n + 1}), BUDGET))
    for turn in range(fits):
        reserve(two if turn % 3 else one)
    for account in (one, two):
        with pytest.raises(BudgetExceededError):
            reserve(account)
    assert len(by_allowance) > 10
    assert len(one.entries()) == fits
    assert one.spent() <= BUDGET.epsilon
    assert not allowances(one)


ACTIONS = st.lists(
    st.tuples(st.booleans(), st.sampled_from(["one", "many", "other", "stop", "finish", "release"])), max_size=12
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTIONS, RULES)
def test_what_is_allowed_always_fits(
    server: str, by_allowance: list[int], actions: list[tuple[bool, str]], rule: Rule
) -> None:
    """Whatever two processes do in turn, all allowances together fit beside all that counts."""
    _clean(server)
    accounts = [opened(server, rule), opened(server, rule)]
    open_ones: list[Any] = []
    for which, action in actions:
        account = accounts[which]
        try:
            _act(account, action, open_ones)
        except BudgetExceededError:
            continue
        counted = account._journal.read().counted
        names = {spending.event_key(event): event for event in _possible_events()}
        allowed = Counter({names[key]: count for key, count in allowances(account).items()})
        assert GATES[rule](account.terms)._holds(counted + allowed, BUDGET)


def _act(account: Account, action: str, open_ones: list[Any]) -> None:
    if action in ("one", "many", "other"):
        steps, event = {"one": (1, STEP), "many": (12, STEP), "other": (1, OTHER)}[action]
        open_ones.append(reserve(account, steps, event))
    elif open_ones:
        reservation = open_ones.pop()
        steps = {"release": 0, "stop": 1, "finish": reservation.steps}[action]
        for step in range(steps):
            reservation.before_noise(step)
        reservation.commit()


def _possible_events() -> list[str]:
    return [spending.encode_event(repeated(event)(steps)) for event in (STEP, OTHER) for steps in (1, 12)]


def _clean(server: str) -> None:
    engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


def test_an_early_end_withdraws_what_was_allowed_and_a_full_one_does_not(
    postgres: str, by_allowance: list[int]
) -> None:
    account = opened(postgres)
    early = reserve(account, 10)
    while (left := allowances(account)).total() < 2:
        reserve(account)
    full = reserve(account)
    full.before_noise(0)
    full.commit()
    assert allowances(account).total() == left.total() - 1 > 0
    early.before_noise(0)
    early.commit()
    assert not allowances(account)


def test_without_a_budget_nothing_is_allowed_in_advance(postgres: str, by_allowance: list[int]) -> None:
    account = opened(postgres, budget=None)
    for _ in range(5):
        reserve(account)
    assert not allowances(account)
    assert not by_allowance


def test_the_clock_is_watched(postgres: str, by_allowance: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    account = opened(postgres)
    for _ in range(6):
        reserve(account)
    before = account.to_dict()["records"], allowances(account)
    monkeypatch.setattr(journal, "now", lambda: "2001-01-01T00:00:00+00:00")
    with pytest.raises(LedgerError, match=r"the clock says 2001.*Nothing was spent"):
        reserve(account)
    assert (account.to_dict()["records"], allowances(account)) == before


@pytest.mark.parametrize("last", ["reservation", "mark"])
def test_a_clock_moved_back_after_the_last_record_is_seen(
    postgres: str, by_allowance: list[int], monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """Whatever the last record was, once the trust has run out."""
    account = opened(postgres)
    running = [reserve(account) for _ in range(6)][-1]
    assert allowances(account).total() > 1
    today = journal.now()
    monkeypatch.setattr(journal, "now", lambda: f"2100{today[4:]}")
    if last == "mark":
        running.before_noise(0)
    else:
        number = len(by_allowance)
        reserve(account)
        assert len(by_allowance) == number + 1
    before = account.to_dict()["records"], allowances(account)
    monkeypatch.setattr(journal, "now", lambda: today)
    monkeypatch.setattr(journal, "_TRUST_SECONDS", -1.0)
    with pytest.raises(LedgerError, match=r"the clock says.*Nothing was spent"):
        reserve(account)
    assert (account.to_dict()["records"], allowances(account)) == before


def test_an_edit_is_seen_once_the_trust_has_run_out(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    account = opened(postgres)
    reader = Ledger.open(postgres).account(account.dataset)
    for _ in range(6):
        reserve(account)
    with account._journal.database.write() as connection:
        connection.execute(sa.text("UPDATE history SET hash = '00' WHERE number = 6"))
    with pytest.raises(LedgerError, match="tampered"):
        reserve(reader)
    monkeypatch.setattr(journal, "_TRUST_SECONDS", -1.0)
    with pytest.raises(LedgerError, match="tampered"):
        reserve(account)
    monkeypatch.setattr(journal, "_TRUST_SECONDS", 1e9)
    with pytest.raises(LedgerError, match="tampered"):
        reserve(account)  # what was found broken is not trusted again


def test_a_new_process_reads_the_history_before_it_takes_what_others_left(
    postgres: str, by_allowance: list[int]
) -> None:
    account = opened(postgres)
    for _ in range(6):
        reserve(account)
    left, used = allowances(account).total(), len(by_allowance)
    assert left > 0
    with account._journal.database.write() as connection:
        connection.execute(sa.text("UPDATE history SET body = replace(body, '3.0', '9.0') WHERE number = 0"))
    fresh = journal.Journal(account._journal.database, 1)
    with pytest.raises(LedgerError, match="tampered"):
        Account(account.terms, account.created, fresh).require(STEP, neighbours=account.neighbours, unit=account.unit)
    with pytest.raises(LedgerError, match="tampered"):
        reserve(Account(account.terms, account.created, fresh))
    assert (allowances(account).total(), len(by_allowance)) == (left, used)


def test_threads_share_what_they_have_read(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where every reservation first reads what is new."""
    monkeypatch.setattr(journal, "_TRUST_SECONDS", -1.0)
    account = opened(postgres)

    def spend() -> None:
        for _ in range(8):
            reservation = reserve(account)
            reservation.before_noise(0)
            reservation.commit()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(spend) for _ in range(4)]:
            done.result(timeout=120)
    assert [entry.steps_charged for entry in account.entries()] == [1] * 32


def test_another_version_of_the_accountants_decides_anew(
    postgres: str, by_allowance: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    account = opened(postgres)
    for _ in range(6):
        reserve(account)
    assert allowances(account).total() > 0
    used = len(by_allowance)
    spending.event_key.cache_clear()
    monkeypatch.setattr(spending.metadata, "version", lambda package: "999")
    reserve(account)
    spending.event_key.cache_clear()
    assert len(by_allowance) == used


def add_as_version_2(connection: sa.Connection, event: dp_accounting.DpEvent) -> None:
    """Reserve one step as a tacit does that knows nothing of allowances."""
    length, head = connection.execute(sa.text("SELECT length, head FROM accounts FOR UPDATE")).one()
    encoded = spending.encode_event(repeated(event)(1))
    record = {"kind": "reserved", "run": "old", "note": "", "steps": 1, "event": encoded, "created": journal.now()}
    body = json.dumps(record)
    values = {"number": length, "body": body, "hash": link(head, length, body)}
    connection.execute(sa.text("INSERT INTO history VALUES (1, :number, :body, :hash)"), values)
    connection.execute(sa.text("UPDATE accounts SET length = :number + 1, head = :hash"), values)


# Beside six steps of `STEP`, it leaves room for none.
LARGE = dp_accounting.GaussianDpEvent(1.49)


def test_what_an_older_process_adds_ends_the_allowances(postgres: str, by_allowance: list[int]) -> None:
    account = opened(postgres)
    running = [reserve(account) for _ in range(6)][-1]
    assert allowances(account).total() > 0
    with account._journal.database.write() as connection:
        add_as_version_2(connection, LARGE)
    running.before_noise(0)  # a record of this version does not bring them back
    with pytest.raises(BudgetExceededError):
        reserve(account)
    assert account.spent() <= BUDGET.epsilon


def test_after_an_older_process_allowances_are_made_anew(postgres: str, by_allowance: list[int]) -> None:
    account = opened(postgres)
    for _ in range(6):
        reserve(account)
    with account._journal.database.write() as connection:
        add_as_version_2(connection, OTHER)
    used = len(by_allowance)
    reserve(account)
    assert len(by_allowance) == used
    for _ in range(4):
        reserve(account)
    assert len(by_allowance) > used


def test_an_older_process_that_writes_meanwhile_ends_the_allowances(postgres: str, by_allowance: list[int]) -> None:
    """Its transaction began first and ends while a reservation by allowance waits for the account's row."""
    account = opened(postgres)
    for _ in range(6):
        reserve(account)
    waiting = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with account._journal.database.write() as connection:
            add_as_version_2(connection, LARGE)
            late = pool.submit(reserve, account)
            deadline = time.monotonic() + 60
            while connection.execute(waiting).scalar() == 0:
                connection.exec_driver_sql("SELECT pg_stat_clear_snapshot()")
                assert time.monotonic() < deadline, "the reservation does not wait"
        with pytest.raises(BudgetExceededError):
            late.result(timeout=60)
    assert account.spent() <= BUDGET.epsilon


def test_what_was_not_added_allows_nothing(postgres: str, by_allowance: list[int]) -> None:
    """A program that does not lock adds a record after another has read and before it writes."""
    account = opened(postgres)
    reserved = {"kind": "reserved", "run": "r", "note": "", "steps": 1, "event": spending.encode_event(STEP)}
    fits = Counter({spending.encode_event(repeated(STEP)(1)): 9})

    def add_meanwhile(history: journal.History) -> journal.Record:
        with account._journal.database.write() as connection:
            add_as_version_2(connection, LARGE)
        return reserved

    reserve(account)
    with pytest.raises(LedgerError, match=r"does not lock it\. Nothing was spent"):
        account._journal.append(add_meanwhile, lambda: fits)
    assert not allowances(account)
    assert [entry.run for entry in account.entries()] == ["r", "old"]


def test_a_program_that_does_not_lock_is_refused(postgres: str) -> None:
    account = opened(postgres)

    def add_meanwhile(history: journal.History) -> journal.Record:
        with account._journal.database.write() as connection:
            connection.execute(sa.text("UPDATE accounts SET length = length + 1"))
        return {"kind": "reserved", "run": "r", "note": "", "steps": 1, "event": "e"}

    with pytest.raises(LedgerError, match=r"does not lock it\. Nothing was spent"):
        account._journal.append(add_meanwhile)
    with account._journal.database.read() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM history")).scalar() == 1
