"""``tacit pate`` through its real entry point."""

import json
import math
import os
import stat
from pathlib import Path

import pytest
from command_line import run_tacit

from tacit.reporting.pate_page import PRIVATE_MARK


def test_a_student_learns_from_noisy_votes():
    ran = run_tacit(
        "pate", "digits", "--teachers", "10", "--queries", "40", "--aggregator", "gnmax", "--sigma", "1", "--json"
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["queries"] == found["answered"] == 40
    assert found["aggregator_accuracy"] > 0.7
    assert found["student_accuracy"] > 0.6
    assert 0 < found["epsilon"] < math.inf
    assert found["epsilon_is_private"] is True
    assert 0 < found["epsilon_data_independent"] < math.inf


def test_the_page_with_votes_is_for_its_owner_alone(tmp_path):
    """The page to publish is readable as any file is, and says nothing of the votes."""
    former = os.umask(0o022)
    try:
        ran = run_tacit(
            *("pate", "digits", "--teachers", "10", "--queries", "20", "--student", "supervised", "--json"),
            *("--out", str(tmp_path / "run")),
        )
    finally:
        os.umask(former)
    assert ran.returncode == 0, ran.stderr
    pages = json.loads(ran.stdout)
    private, public = Path(pages["private_page"]), Path(pages["page"])
    assert (private.name, public.name) == ("private.html", "report.html")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    assert PRIVATE_MARK in private.read_text(encoding="utf-8")
    assert PRIVATE_MARK not in public.read_text(encoding="utf-8")


def test_a_budget_ends_the_questions(tmp_path):
    book = str(tmp_path / "budget.sqlite")
    made = run_tacit(
        *("ledger", "create", book, "--dataset", "digits", "--epsilon", "4", "--delta", "1e-5"),
        *("--neighbours", "replace-one"),
    )
    assert made.returncode == 0, made.stderr
    ran = run_tacit(
        "pate", "digits", "--teachers", "10", "--queries", "60", "--ledger", book, "--student", "supervised", "--json"
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert 0 < found["answered"] < 60
    assert found["out_of_budget"] is True
    spent = json.loads(run_tacit("ledger", "show", book, "--json").stdout)
    assert "digits" in json.dumps(spent)
    again = run_tacit("pate", "digits", "--teachers", "10", "--queries", "60", "--ledger", book, "--json")
    assert again.returncode == 3
    assert "budget" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--teachers", "20000"), "teachers=20000: must be at most the 1438 records"),
        (("--aggregator", "mean"), "aggregator='mean': must be one of"),
        (("--student", "cat"), "student='cat': must be one of"),
        (("--teachers", "0"), "teachers=0"),
        (("--gamma", "-1"), "gamma=-1"),
        (("--queries", "0"), "queries=0"),
    ],
)
def test_bad_input_is_named(arguments, message):
    ran = run_tacit("pate", "digits", *arguments)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
