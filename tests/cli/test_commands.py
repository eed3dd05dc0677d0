"""The command line through its entry point: good input."""

import json
import math

import pytest
from command_line import refusal, run_process, run_tacit

from tacit.cli import app
from tacit.training.run_folder import SCHEMA_VERSION

QUICK = ("--steps", "4", "--batch-size", "64")


def run_json(*arguments, **options):
    done = run_tacit(*arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip().splitlines()) == 1
    return json.loads(done.stdout)


def test_alone_it_shows_what_to_do_first():
    done = run_process()
    assert done.returncode == 0
    assert "tacit train" in done.stdout


def test_account_gives_the_published_numbers():
    found = run_json(
        *("account", "dpsgd", "--sampling-rate", "0.01", "--noise-multiplier", "4"),
        *("--steps", "10000", "--delta", "1e-5"),
    )
    epsilon = found["epsilon"]
    assert epsilon["moments"] == pytest.approx(1.2586, abs=0.002)
    assert 9.3 < epsilon["strong"] < 9.4
    assert epsilon["rdp"] == pytest.approx(1.0355, abs=0.001)
    assert epsilon["pld"] == pytest.approx(0.947, abs=0.003)
    assert {"gdp", "basic", "strong-rigorous"} <= epsilon.keys()
    for part in ("add-remove", "Poisson", "1e-05", "pld", "10000 steps"):
        assert part in found["statement"]


def test_account_with_one_accountant():
    found = run_json(
        *("account", "dpsgd", "--sampling-rate", "0.01", "--noise-multiplier", "4"),
        *("--steps", "100", "--delta", "1e-5", "--accountant", "rdp"),
    )
    assert list(found["epsilon"]) == ["rdp"]


@pytest.mark.parametrize(("epsilon", "noise"), [(1, 3.813), (8, 0.8825)])
def test_calibrate_keeps_below_the_target_and_close_to_it(epsilon, noise):
    found = run_json(
        *("calibrate", "dpsgd", "--epsilon", str(epsilon), "--delta", "1e-5"),
        *("--sampling-rate", "0.01", "--steps", "10000"),
    )
    assert found["epsilon"] <= epsilon
    assert found["noise_multiplier"] == pytest.approx(noise, rel=1e-3)
    assert found["seconds"] > 0


def test_calibrate_steps_and_batch_size():
    steps = run_json(
        *("calibrate", "steps", "--epsilon", "1", "--delta", "1e-5", "--sampling-rate", "0.01"),
        *("--noise-multiplier", "3.9"),
    )
    assert steps["steps"] >= 10_000
    assert steps["epsilon"] <= 1
    size = run_json(
        *("calibrate", "batch-size", "--epsilon", "1", "--delta", "1e-5", "--examples", "60000"),
        *("--noise-multiplier", "3.9", "--steps", "10000"),
    )
    assert size["batch_size"] >= 600
    assert size["epsilon"] <= 1


def test_train_leaves_a_whole_run_folder(tmp_path):
    found = run_json("train", "--seeds", "2", *QUICK, "--out", str(tmp_path / "run"))
    assert 0 < found["test_accuracy"] < 1
    assert found["test_accuracy_std"] >= 0
    assert found["epsilon"] <= 3
    assert found["delta"] == 1e-5
    assert found["steps"] == 4
    assert found["noise_multiplier"] > 0
    assert found["seconds"] > 0
    assert "differentially private" in found["statement"]
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} == {
        *("run.json", "history.jsonl", "model.safetensors", "report.html"),
    }
    record = json.loads((folder / "run.json").read_text())
    assert record["schema"] == SCHEMA_VERSION
    assert record["status"] == "finished"
    assert record["seeds"] == [0, 1]
    assert {"plan", "statement", "versions", "hardware", "metrics", "epsilon_by_accountant"} <= record.keys()
    assert "2 such models" in record["statement"]["sentence"]
    points = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert {point["seed"] for point in points} == {0, 1}
    epsilons = [point["epsilon"] for point in points if point["seed"] == 0]
    assert epsilons == sorted(epsilons)
    assert run_json("report", str(folder))["page"] == str(folder / "report.html")


@pytest.mark.parametrize(
    "options",
    [
        ("--noise-multiplier", "2"),
        ("--model", "linear", "--optimizer", "adam", "--learning-rate", "0.01", "--schedule", "cosine"),
        ("--clipping", "per-layer", "--optimizer", "rmsprop", "--learning-rate", "0.01"),
        ("--clipping", "automatic", "--optimizer", "sgd", "--engine", "functional", "--chunk-size", "10"),
        ("--clipping", "tanh", "--tanh-range", "0.5", "--tanh-expansion", "0.1"),
        ("--clipping", "tanh-alone", "--noise-multiplier", "2"),
        ("--sampler", "shuffled"),
        ("--sampler", "fixed-size"),
        ("--sampler", "truncated-poisson", "--average", "0.5"),
    ],
)
def test_train_takes_every_option(tmp_path, options):
    found = run_json("train", "digits", *QUICK, *options, "--out", str(tmp_path / "run"))
    assert math.isfinite(found["epsilon"])


def test_train_reports_the_true_epsilon_of_the_tanh_filter(tmp_path):
    """Noise is relative to the sensitivity, c sqrt(n): a standard deviation of 1.1 is next to nothing."""
    numbers = 64 * 10 + 10
    options = ("--model", "linear", "--clipping", "tanh-alone", "--tanh-range", "2")
    multiplier = 1.1 / (2 * math.sqrt(numbers))
    found = run_json("train", *QUICK, *options, "--noise-multiplier", str(multiplier), "--out", str(tmp_path / "run"))
    assert found["epsilon"] > 100
    assert "2 tanh(g / 1) and clipped at norm 2 sqrt(n)" in found["statement"]


def test_train_without_noise_says_that_nothing_is_guaranteed(tmp_path):
    found = run_json("train", *QUICK, "--noise-multiplier", "0", "--unsafe-no-noise", "--out", str(tmp_path / "run"))
    assert found["epsilon"] is None
    assert "not differentially private" in found["statement"]


def test_a_fixed_seed_repeats_a_run_and_is_named_in_the_statement(tmp_path):
    runs = [run_json("train", *QUICK, "--unsafe-seed", "7", "--out", str(tmp_path / name)) for name in "ab"]
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    assert "fixed seed" in runs[0]["statement"]
    assert "dealt to training" not in runs[0]["statement"]


def test_train_on_a_table(tmp_path, table):
    found = run_json(
        *("train", str(table / "people.csv"), "--target", "employed", "--schema", str(table / "people.toml")),
        *("--steps", "5", "--out", str(tmp_path / "run")),
    )
    assert 0 <= found["test_accuracy"] <= 1
    assert "it holds for the rows dealt to training" in found["statement"]
    assert found["private"] == ["test_accuracy", "test_accuracy_std"]
    regression = run_json(
        *("train", str(table / "people.csv"), "--target", "age", "--schema", str(table / "people.toml")),
        *("--steps", "5", "--out", str(tmp_path / "regression")),
    )
    assert regression["test_accuracy"] is None
    assert regression["test_mse"] > 0
    assert regression["private"] == ["test_mse", "test_mse_std"]


def test_a_ledger_counts_every_model_and_refuses_what_does_not_fit(tmp_path):
    book = str(tmp_path / "budget.sqlite")
    created = run_json("ledger", "create", book, "--dataset", "digits", "--epsilon", "2.2", "--delta", "1e-5")
    assert created["budget"] == {"epsilon": 2.2, "delta": 1e-5}
    assert created["entries"] == []
    spend = ("train", *QUICK, "--epsilon", "2", "--ledger", book)
    run_json(*spend, "--out", str(tmp_path / "first"))
    shown = run_json("ledger", "show", book)
    assert shown["spent"]["epsilon"] == pytest.approx(2, rel=0.01)
    assert shown["remaining"]["epsilon"] == pytest.approx(0.2, abs=0.02)
    assert "budget" in refusal(*spend, "--seeds", "2", "--out", str(tmp_path / "second"), status=3)
    assert not (tmp_path / "second").exists()
    assert run_json("ledger", "history", book)["entries"] == shown["entries"]
    assert "committed" in run_tacit("ledger", "history", book).stdout


def test_data_lists_and_finds():
    assert "mnist" in {entry["name"] for entry in run_json("data", "list")["sets"]}
    found = run_json("data", "get", "digits")
    assert found["name"] == "digits"
    assert {"path", "sha256"} <= found.keys()


def test_prose_is_for_people(tmp_path):
    done = run_tacit("train", *QUICK, "--out", str(tmp_path / "run"))
    assert done.returncode == 0
    assert "test accuracy" in done.stdout
    assert "differentially private" in done.stdout
    assert "report.html" in done.stdout


GROUPS = ("account", "calibrate", "recipe", "data", "schema", "ledger", "bench")


def test_these_are_all_groups():
    assert {group.name for group in app.registered_groups} == set(GROUPS)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_without_a_command_shows_its_help_and_no_empty_message(group):
    done = run_tacit(group)
    assert done.returncode == 2
    assert f" {group} [OPTIONS] COMMAND" in done.stdout
    assert "Commands" in done.stdout
    assert done.stderr == ""
