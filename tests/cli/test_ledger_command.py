"""``tacit ledger`` through its entry point: both rules, a verified history, and what an edit is told."""

import contextlib
import json
import sqlite3

import pytest
from command_line import run_tacit
from dp_accounting import GaussianDpEvent

from tacit.ledger import Ledger, repeated


def _create(book, *more):
    done = run_tacit("ledger", "create", book, "--dataset", "d", "--epsilon", "3", "--delta", "1e-5", *more)
    assert done.returncode == 0
    return done.stdout


@pytest.fixture
def book(tmp_path):
    return str(tmp_path / "ledger.sqlite")


def test_show_says_which_rule_applies_and_what_remains_under_both(book):
    assert "rule       fixed-plan: holds if every run was declared" in _create(book)
    shown = run_tacit("ledger", "show", book).stdout
    assert "fixed-plan: epsilon 0.0000 spent, epsilon 3.0000 remaining" in shown
    assert "adaptive: epsilon 0.0000 spent, epsilon 3.0000 remaining" in shown
    assert "odometer   epsilon 0.0000" in shown
    facts = json.loads(run_tacit("ledger", "show", book, "--json").stdout)
    assert facts["rule"] == "fixed-plan"
    assert facts["head"] in shown


def test_an_adaptive_account_stays_adaptive(book):
    assert "rule       adaptive: a Rényi filter" in _create(book, "--adaptive")
    refused = run_tacit("ledger", "create", book, "--dataset", "d", "--epsilon", "3", "--delta", "1e-5")
    assert refused.returncode == 2
    assert "rule='adaptive'" in refused.stderr


@pytest.mark.parametrize("command", ["show", "history"])
def test_an_edit_is_told(book, command):
    _create(book)
    with contextlib.closing(sqlite3.connect(book)) as connection, connection:
        connection.execute("UPDATE history SET body = replace(body, '3.0', '30.0')")
    refused = run_tacit("ledger", command, book)
    assert refused.returncode == 2
    assert "tampered" in refused.stderr
    assert refused.stdout == ""


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("postgresql://nobody@/none?host=/no/such/folder", "Check the address and that the server runs"),
        ("postgresql:nothing", "is no database address"),
        ("mysql://host/ledger", "only SQLite and PostgreSQL"),
    ],
)
def test_a_wrong_address_is_one_clear_line(address, words):
    pytest.importorskip("psycopg")
    refused = run_tacit("ledger", "show", address)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_password_is_never_printed():
    pytest.importorskip("psycopg")
    refused = run_tacit("ledger", "show", "postgresql://user:hunter2@localhost:1/ledger")
    assert refused.returncode == 2
    assert "hunter2" not in refused.stderr + refused.stdout


def test_a_reservation_that_nobody_will_commit_is_settled(book):
    _create(book)
    account = Ledger.open(book).account("d")
    event_for = repeated(GaussianDpEvent(10.0))
    for _ in range(2):
        reservation = account.reserve(event_for, 5, run="r", neighbours=account.neighbours, unit=account.unit)
    reservation.before_noise(0)
    assert "entries    2, 2 open and counted whole (1, 2)" in run_tacit("ledger", "show", book).stdout
    assert "reservation 1 (r): released, 0 of 5 steps charged" in run_tacit("ledger", "settle", book, "1").stdout
    settled = json.loads(run_tacit("ledger", "settle", book, "2", "--json").stdout)
    assert (settled["state"], settled["steps_charged"]) == ("settled", 5)
    assert "entries    2, none open" in run_tacit("ledger", "show", book).stdout
    assert "settled" in run_tacit("ledger", "history", book).stdout
    again = run_tacit("ledger", "settle", book, "2")
    assert again.returncode == 2
    assert "reservation 2 is settled, not open" in again.stderr


def test_the_help_says_what_the_rule_without_a_flag_is():
    said = " ".join(run_tacit("ledger", "create", "--help").stdout.split())
    assert "declared before the first result was seen" in said
