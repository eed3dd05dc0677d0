"""``tacit pate`` through its real entry point."""

import json
import math

import pytest
from command_line import run_tacit


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
