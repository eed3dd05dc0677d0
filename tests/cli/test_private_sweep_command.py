"""``tacit sweep --private`` and ``tacit sweep --ledger`` through the entry point."""

import json

import pytest
from command_line import run_tacit

QUICK = ("--set", "steps=3")
PRIVATE = ("--private", "--epsilon", "2", "--delta", "1e-5", "--trials", "2")


def run_json(*arguments, cwd):
    done = run_tacit(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip().splitlines()) == 1
    return json.loads(done.stdout)


def ledger(tmp_path, epsilon):
    run_json("ledger", "create", "l.db", "--dataset", "digits", "--epsilon", epsilon, "--delta", "1e-5", cwd=tmp_path)


def shown(tmp_path):
    return run_json("ledger", "show", "l.db", cwd=tmp_path)


def test_one_winner_and_nothing_else_leaves(tmp_path):
    ledger(tmp_path, "2")
    grid = ("--over", "learning_rate=0.1,0.5", "--over", "batch_size=64,256")
    found = run_json("sweep", "digits", *grid, *QUICK, *PRIVATE, "--ledger", "l.db", cwd=tmp_path)
    (row,) = found["rows"]
    assert row["learning_rate"] in ("0.1", "0.5")
    assert row["batch_size"] in ("64", "256")
    assert 0 <= found["test_accuracy"] <= 1
    assert 1.98 < found["epsilon"] <= 2
    assert "private selection among 4 settings" in found["statement"]
    assert not {"seconds", "history", "accuracies"} & (found.keys() | row.keys())
    run = tmp_path / found["run"]
    assert {path.name for path in run.iterdir()} == {"run.json", "model.safetensors", "report.html"}
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert record["metrics"]["seconds"] is None
    assert record["statement"]["sentence"] == found["statement"]
    assert "private selection" in (run / "report.html").read_text(encoding="utf-8")
    account = shown(tmp_path)
    (entry,) = account["entries"]
    assert entry["state"] == "committed"
    assert account["spent"]["epsilon"] == pytest.approx(found["epsilon"])
    # What is left does not hold another one: nothing is spent, and no folder is left behind.
    folders = sorted((tmp_path / "runs").iterdir())
    refused = run_tacit("sweep", "digits", *grid, *QUICK, *PRIVATE, "--ledger", "l.db", cwd=tmp_path)
    assert refused.returncode == 3
    assert len(refused.stderr.strip().splitlines()) == 1
    assert shown(tmp_path)["entries"] == account["entries"]
    assert sorted((tmp_path / "runs").iterdir()) == folders


def test_prose_says_what_was_chosen(tmp_path):
    done = run_tacit(
        "sweep",
        "digits",
        "--over",
        "clip=0.5,1",
        *QUICK,
        *PRIVATE,
        "--stopping",
        "geometric",
        "--out",
        "w",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "chosen clip=" in done.stdout
    assert "geometric with mean 2" in done.stdout
    assert (tmp_path / "w" / "model.safetensors").exists()


def test_without_private_every_model_adds_up_in_the_ledger(tmp_path):
    ledger(tmp_path, "6")
    arguments = ("sweep", "digits", "--over", "clip=0.1,1", *QUICK, "--seeds", "2", "--ledger", "l.db")
    found = run_json(*arguments, cwd=tmp_path)
    account = shown(tmp_path)
    assert [entry["state"] for entry in account["entries"]] == ["committed"] * 4
    assert account["spent"]["epsilon"] == pytest.approx(found["epsilon_together"], rel=1e-3)
    assert account["spent"]["epsilon"] > 1.5 * max(row["epsilon"] for row in found["rows"])
    refused = run_tacit(*arguments, cwd=tmp_path)
    assert refused.returncode == 3
    assert shown(tmp_path)["entries"] == account["entries"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--epsilon", "2"), ("epsilon=2.0", "--private")),
        (("--trials", "5"), ("trials=5.0", "--private")),
        (("--private", "--trials", "0.5"), ("mean=0.5", "at least 1")),
        (("--private", "--stopping", "fixed"), ("stopping='fixed'", "geometric")),
        (("--private", "--epsilon", "0"), ("epsilon=0.0", "above 0")),
        (("--private", "--delta", "2"), ("delta=2.0", "between 0 and 1")),
        (("--private", "--set", "epsilon=2"), ("epsilon", "--set")),
        (("--private", "--seeds", "3"), ("seeds=3", "one model")),
        (("--private", "--held-out"), ("held_out=True", "Leave out")),
        (("--ledger", "nowhere.db"), ("nowhere.db", "ledger create")),
    ],
)
def test_bad_input_is_one_line(arguments, parts, tmp_path):
    done = run_tacit("sweep", "digits", "--over", "clip=0.5,1", *QUICK, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    for part in parts:
        assert part in done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_held_out_figures_are_refused_where_a_ledger_counts(tmp_path):
    ledger(tmp_path, "6")
    done = run_tacit("sweep", "digits", "--over", "clip=0.5,1", *QUICK, "--held-out", "--ledger", "l.db", cwd=tmp_path)
    assert done.returncode == 2
    assert "--private" in done.stderr
    assert shown(tmp_path)["entries"] == []
