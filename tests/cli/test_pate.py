"""``tacit pate`` through its real entry point."""

import json
import math
import os
import stat
from pathlib import Path

import pytest
from command_line import run_tacit

from tacit.pate import settings
from tacit.pate.students import FixMatch, Supervised
from tacit.reporting.pate_page import PRIVATE_MARK


@pytest.fixture(autouse=True)
def hasty_student(monkeypatch):
    """Nothing depends on how well a supervised student has learned, and the other need not be at its best."""
    monkeypatch.setattr(settings, "Supervised", lambda: Supervised(steps=30))
    monkeypatch.setattr(settings, "FixMatch", lambda: FixMatch(steps=200))


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
    folder = tmp_path / "again"
    again = run_tacit("pate", "digits", "--teachers", "10", "--queries", "60", "--ledger", book, "--out", str(folder))
    assert again.returncode == 3
    assert "budget" in again.stderr
    assert not folder.exists()


SMALL = ("pate", "digits", "--teachers", "10", "--queries", "30", "--student", "supervised")


def test_a_published_epsilon_is_in_the_ledger(tmp_path):
    book, run = str(tmp_path / "book.sqlite"), str(tmp_path / "run")
    budget = ("--dataset", "digits", "--epsilon", "1000", "--delta", "1e-5", "--neighbours", "replace-one")
    assert run_tacit("ledger", "create", book, *budget).returncode == 0
    publish = ("--aggregator", "gnmax", "--sigma", "4", "--publish-epsilon")
    ran = run_tacit(*SMALL, *publish, "--ledger", book, "--out", run, "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["epsilon_released"] > 0
    spent = json.loads(run_tacit("ledger", "show", book, "--json").stdout)["spent"]["epsilon"]
    assert spent == pytest.approx(found["epsilon_data_independent"])
    history = run_tacit("ledger", "history", book, "--json").stdout
    assert "pate digits (published epsilon)" in history
    for told in (history, (tmp_path / "run" / "run.json").read_text(encoding="utf-8")):
        assert str(found["epsilon"]) not in told  # the one without noise


def test_what_is_private_is_named_where_it_is_told():
    ran = run_tacit(*SMALL, "--aggregator", "gnmax", "--sigma", "4", "--json")
    found = json.loads(ran.stdout)
    assert found["private"] == ["epsilon", "excluded_teachers"]
    shown = run_tacit(*SMALL, "--aggregator", "gnmax", "--sigma", "4").stdout
    assert "for these votes: private, not to be published" in shown


@pytest.mark.parametrize("teacher", ["logistic", "forest", "bayes"])
def test_teachers_may_be_estimators(teacher, tmp_path):
    few = ("--teachers", "4", "--gamma", "4")
    ran = run_tacit(*SMALL, *few, "--teacher", teacher, "--out", str(tmp_path / "run"), "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["aggregator_accuracy"] > 0.6


def test_teachers_confirm_a_student_or_object(tmp_path):
    few = (
        "--sigma",
        "1",
        "--sigma-threshold",
        "2",
        "--threshold",
        "6",
        "--check-threshold",
        "4",
        "--confidence",
        "0.6",
    )
    ran = run_tacit(*SMALL, "--aggregator", "interactive-gnmax", *few, "--out", str(tmp_path / "run"), "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["queries"] == 30
    assert 0 < found["answered"] < 30
    assert 0 < found["epsilon_data_independent"] < math.inf
    record = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert (record["plan"]["aggregator"], record["plan"]["rounds"]) == ("interactive-gnmax", 2)


def test_network_teachers_are_kept_for_a_second_run(tmp_path):
    kept, networks = tmp_path / "teachers", ("--teacher", "network", "--teacher-model", "linear", "--gamma", "2")
    keep = ("--keep-teachers", str(kept), "--json")
    first = run_tacit(*SMALL, *networks, *keep, "--out", str(tmp_path / "first"))
    assert first.returncode == 0, first.stderr
    files = {file.name: file.stat().st_mtime_ns for file in kept.iterdir()}
    assert len(files) == 10
    second = run_tacit(*SMALL, *networks, *keep, "--out", str(tmp_path / "second"))
    assert second.returncode == 0, second.stderr
    assert {file.name: file.stat().st_mtime_ns for file in kept.iterdir()} == files


def test_owners_make_it_a_guarantee_for_users(tmp_path):
    owners, book = tmp_path / "owners.txt", str(tmp_path / "book.sqlite")
    owners.write_text("".join(f"user {row // 5}\n" for row in range(1438)), encoding="utf-8")
    budget = ("--dataset", "digits", "--epsilon", "1000", "--delta", "1e-5")
    made = run_tacit("ledger", "create", book, *budget, "--unit", "user", "--neighbours", "add-remove")
    assert made.returncode == 0, made.stderr
    ran = run_tacit(*SMALL, "--owners", str(owners), "--ledger", book, "--out", str(tmp_path / "run"), "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["neighbours"] == "add-remove"
    record = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert "for one user under the add-remove relation" in record["statement"]["sentence"]
    records = run_tacit(*SMALL, "--aggregator", "private-knn", "--ledger", book)
    assert records.returncode == 2
    assert "unit='example': the account of 'digits' protects one user" in records.stderr


def test_owners_that_do_not_fit_are_refused(tmp_path):
    owners = tmp_path / "owners.txt"
    for text, message in (
        ("one\ntwo\n", "owners=2: must be one for each of the 1438 records"),
        ("one\n\nthree\n", "line 2 is empty"),
    ):
        owners.write_text(text, encoding="utf-8")
        ran = run_tacit("pate", "digits", "--owners", str(owners))
        assert ran.returncode == 2
        assert message in ran.stderr
    missing = run_tacit("pate", "digits", "--owners", str(tmp_path / "none"))
    assert missing.returncode == 2
    assert "cannot be read as text" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--teacher", "cat"), "teacher='cat': must be one of"),
        (("--teacher-model", "mlp"), "teacher_model='mlp': is for networks alone"),
        (("--teacher", "network", "--teacher-model", "cat"), "model='cat': must be one of"),
        (("--check-threshold", "4"), "check_threshold=4: is for interactive-gnmax alone"),
        (("--aggregator", "interactive-gnmax", "--rounds", "1"), "rounds=1: must be"),
        (("--rounds", "0"), "rounds=0"),
        (("--public", "middle"), "public='middle': must be one of"),
        (("--publish-epsilon",), "aggregator='lnmax': its epsilon cannot be published"),
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
