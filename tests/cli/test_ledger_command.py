"""``tacit ledger`` through its entry point: both rules, a verified history, and what an edit is told."""

import contextlib
import json
import sqlite3

import pytest
from command_line import run_tacit


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
