"""``tacit linear`` through its real entry point."""

import json

import numpy as np
import pytest
from command_line import run_tacit

from tacit.core.privacy import Budget, PrivacyUnit
from tacit.ledger import Ledger

_SCHEMA = """
[columns.age]
type = "number"
lower = 0
upper = 10

[columns.pay]
type = "number"
lower = 0
upper = 100
clip = true

[columns.rich]
type = "boolean"
"""


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    stream = np.random.default_rng(0)
    ages = stream.uniform(0, 10, 800)
    pays = 8 * ages + 5 * stream.standard_normal(800)
    lines = [f"{age},{pay},{int(pay > 40)}" for age, pay in zip(ages, pays, strict=True)]
    (folder / "people.csv").write_text("\n".join(["age,pay,rich", *lines]))
    (folder / "people.toml").write_text(_SCHEMA)
    return folder


def _linear(people, *arguments):
    table = ("linear", str(people / "people.csv"), "--schema", str(people / "people.toml"))
    return run_tacit(*table, *arguments)


def test_a_regression_with_its_page(people, tmp_path):
    ran = _linear(
        people, *("--target", "pay", "--features", "age", "--epsilon", "4", "--repeats", "3"),
        *("--test-fraction", "0.3", "--out", str(tmp_path), "--json"),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert abs(found["test_mse"] - found["plain"]) < 0.1 * found["constant"]
    assert found["plain"] < 0.2 * found["constant"]
    assert (found["method"], found["epsilon"], found["delta"]) == ("newton", 4.0, 1e-6)
    assert "test_mse" in found["private"]
    model = json.loads((tmp_path / "model.json").read_text())
    assert model == found["release"]
    assert model["statement"]["epsilon"] == 4.0
    page = (tmp_path / "evaluation.html").read_text()
    assert (tmp_path / "evaluation.html").stat().st_mode & 0o077 == 0
    for words in (
        "Keep\n  it with the data",
        "Predicted against true",
        "Coefficients",
        "Error against epsilon",
        "split",
    ):
        assert words in page
    assert "src=" not in page  # it needs nothing else
    assert "@import" not in page


def test_a_classification_and_a_pure_guarantee(people):
    ran = _linear(people, "--target", "rich", "--features", "age", "--epsilon", "4", "--delta", "0", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert (found["method"], found["delta"]) == ("functional", 0.0)
    assert found["test_accuracy"] > found["constant"]


def test_a_fixed_seed_states_no_guarantee(people, tmp_path):
    """Neither in JSON, nor in the model, nor on the page, nor in words."""
    arguments = ("--target", "pay", "--features", "age", "--epsilon", "0.8", "--unsafe-seed", "3")
    ran = _linear(people, *arguments, "--out", str(tmp_path), "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    model, page = (tmp_path / "model.json").read_text(), (tmp_path / "evaluation.html").read_text()
    assert found["epsilon"] is None
    assert json.loads(model)["statement"]["epsilon"] is None
    for text in (found["statement"], model, page, _linear(people, *arguments).stdout.replace("\n", " ")):
        assert "not differentially private (epsilon is infinite)" in text
        assert "the noise came from a fixed seed" in text
        assert "(0.8, " not in text


def test_words_for_people(people):
    ran = _linear(people, "--target", "pay", "--method", "sufficient", "--split", "0.6", "--neighbours", "replace-one")
    assert ran.returncode == 0, ran.stderr
    assert "test mean squared error" in ran.stdout
    assert "keep them with the data" in ran.stdout
    assert "replace-one relation" in ran.stdout


def test_a_budget_is_charged_once_and_then_refuses(people, tmp_path):
    book = str(tmp_path / "budget.sqlite")
    run_tacit("ledger", "create", book, "--dataset", "people.csv", "--epsilon", "1", "--delta", "1e-6")
    first, second = (_linear(people, "--target", "pay", "--epsilon", "1", "--ledger", book) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert second.returncode == 3
    assert "budget" in second.stderr


@pytest.mark.parametrize(("delta", "budget"), [("0", 1.0), ("1e-6", 1.01)])
def test_the_unit_is_the_accounts(people, tmp_path, delta, budget):
    """Persons of up to three rows are protected. The ledger's account of groups of Gaussians is a little larger."""
    book = tmp_path / "budget.sqlite"
    Ledger.create(
        book, dataset="people.csv", budget=Budget(budget, float(delta)), unit=PrivacyUnit("person", max_examples=3)
    )
    ran = _linear(people, "--target", "pay", "--features", "age", "--delta", delta, "--ledger", str(book), "--json")
    assert ran.returncode == 0, ran.stderr
    assert "for one person (up to 3 examples)" in json.loads(ran.stdout)["statement"]
    assert len(Ledger.open(book).account("people.csv").entries()) == 1


def _constant_target(people, folder):
    header, *lines = (people / "people.csv").read_text().splitlines()
    (folder / "people.csv").write_text("\n".join([header, *(f"{line.split(',')[0]},50,1" for line in lines)]))
    (folder / "people.toml").write_text(_SCHEMA)
    return folder, ()


def _file_in_the_way(people, folder):
    (folder / "taken").write_text("")
    return people, ("--out", str(folder / "taken"))


def _model_in_the_way(people, folder):
    (folder / "out" / "model.json").mkdir(parents=True)
    return people, ("--out", str(folder / "out"))


@pytest.mark.parametrize(
    ("hinder", "message"),
    [
        (_constant_target, "has the same value in every row for testing"),
        (_file_in_the_way, "cannot be written (File exists)"),
        (_model_in_the_way, "model.json is a folder"),
    ],
)
def test_what_cannot_be_finished_is_refused_before_anything_is_spent(hinder, message, people, tmp_path):
    book = str(tmp_path / "budget.sqlite")
    run_tacit("ledger", "create", book, "--dataset", "people.csv", "--epsilon", "1", "--delta", "1e-6")
    table, arguments = hinder(people, tmp_path)
    ran = _linear(table, "--target", "pay", "--features", "age", "--ledger", book, *arguments)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert ran.stderr.startswith("tacit: ")  # no empty line of a progress bar before it
    assert Ledger.open(book).account("people.csv").entries() == []


def test_the_model_is_kept_where_the_page_fails(people, tmp_path, monkeypatch):
    """It was paid for, and is written before the curves are drawn."""
    from tacit.cli import linear as command
    from tacit.linear import evaluation

    def fails(*_, **__):
        raise RuntimeError("curves")

    monkeypatch.setattr(evaluation, "evaluation", fails)
    with pytest.raises(RuntimeError, match="curves"):
        command.linear(
            str(people / "people.csv"), target="pay", schema=people / "people.toml", features="age", out_folder=tmp_path
        )
    assert json.loads((tmp_path / "model.json").read_text())["features"] == ["age"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "pay", "--epsilon", "0"), "epsilon=0"),
        (("--target", "pay", "--method", "magic"), "method='magic': must be one of"),
        (("--target", "salary"), "target='salary': is not a column of the schema"),
        (("--target", "pay", "--features", "height"), "features='height'"),
        (("--target", "pay", "--delta", "0", "--method", "newton"), "delta=0: newton"),
        (("--target", "pay", "--test-fraction", "1"), "test_fraction=1"),
        (("--target", "pay", "--neighbours", "twins"), "--neighbours='twins'"),
        (("--target", "pay", "--repeats", "0"), "repeats=0"),
        (("--target", "pay", "--split", "0.5", "--method", "newton"), "have a split"),
        (("--target", "pay", "--examples", "0"), "examples=0: must be at least 1"),
        (("--target", "pay", "--examples", "-5"), "examples=-5: must be at least 1"),
        (("--target", "pay", "--split-seed", "-1"), "split_seed=-1: must be at least 0"),
    ],
)
def test_bad_input_of_linear_is_named(people, arguments, message):
    ran = _linear(people, *arguments)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_the_functional_mechanism_is_pure_unless_told(people):
    ran = _linear(people, *("--target", "pay", "--method", "functional", "--epsilon", "1", "--json"))
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["delta"] == 0
