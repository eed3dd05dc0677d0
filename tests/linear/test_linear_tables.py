"""Fits of tables: chunks, rows for testing, what is held in memory, and scores."""

import json

import numpy as np
import pandas as pd
import pytest

from tacit.core.errors import InputError
from tacit.core.plain import to_json
from tacit.core.privacy import Budget, Neighbours
from tacit.core.randomness import Randomness
from tacit.datasets.partition import evenly_spread
from tacit.datasets.tables import Table
from tacit.ledger import Ledger
from tacit.linear import Guarantee, Terms, fit_table
from tacit.linear import tables as linear_tables
from tacit.linear.curves import error_curves, split_curve
from tacit.linear.experiment import _EvenSample, run_linear
from tacit.linear.tables import Task, TrainingRows

_SCHEMA = {
    "columns": {
        "age": {"type": "number", "lower": 0, "upper": 10},
        "region": {"type": "category", "categories": ["north", "south", "west"]},
        "pay": {"type": "number", "lower": 0, "upper": 100},
        "rich": {"type": "boolean"},
    }
}


def _table(count=3000):
    stream = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"age": stream.uniform(0, 10, count), "region": stream.choice(["north", "south", "west"], count)}
    )
    frame["pay"] = np.clip(4 * frame["age"] + 30 * (frame["region"] == "west") + stream.normal(0, 5, count), 0, 100)
    frame["rich"] = (frame["pay"] > 30).astype(int)
    return frame, Table.open(frame, _SCHEMA)


def test_a_table_and_its_parts_by_a_public_rule():
    frame, table = _table()
    task = Task.of(table, "pay", ["age", "region"], test_fraction=0.25)
    for_test = evenly_spread(len(frame)) < 0.25
    assert sum(len(targets) for _, targets in task.rows(test=True)) == for_test.sum()
    assert sum(len(block.targets) for block in TrainingRows(task)()) == (~for_test).sum()
    shuffled = Task.of(table, "pay", ["age", "region"], test_fraction=0.25, split_seed=3)
    chosen = np.sort(np.random.default_rng(3).permutation(len(frame))[int(0.75 * len(frame)) :])
    targets = np.concatenate([part for _, part in shuffled.rows(test=True)])
    assert targets == pytest.approx(frame["pay"].to_numpy()[chosen] / 50 - 1)


@pytest.mark.parametrize("held", [0, 1 << 26])
def test_rows_are_read_again_as_they_were_whether_held_or_not(held, monkeypatch, tmp_path):
    """The same noise gives the same coefficients from memory, from the file anew, and from chunks of another size."""
    frame, _ = _table(500)
    frame.to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr(linear_tables, "_HELD_BYTES", held)
    passes = []
    read = Table.chunks
    monkeypatch.setattr(Table, "chunks", lambda *given: passes.append(1) or read(*given))
    task = Task.of(Table.open(tmp_path / "t.csv", _SCHEMA), "pay", ["age", "region"])
    model = fit_table(task, Guarantee(1.0, 1e-6), method="newton", randomness=Randomness(unsafe_seed=5))
    assert len(passes) == (1 if held else 5)
    memory = fit_table(
        Task.of(Table.open(frame, _SCHEMA), "pay", ["age", "region"]),
        Guarantee(1.0, 1e-6),
        method="newton",
        randomness=Randomness(unsafe_seed=5),
    )
    assert model.coefficients == pytest.approx(memory.coefficients, abs=1e-3)  # the file holds rounded numbers


def test_scores_stand_beside_plain_and_constant():
    _, table = _table()
    task = Task.of(table, "pay", ["age", "region"], test_fraction=0.2)
    result = run_linear(task, Guarantee(5.0, 1e-6, Neighbours.REPLACE_ONE), repeats=3).to_dict()
    assert result["test_mse"] == pytest.approx(result["plain"], abs=0.01)
    assert result["constant"] > 3 * result["plain"]
    assert "test_mse" in result["private"]
    assert result["repeats"] == 3
    release = result["release"]
    assert release["features"] == ["age", "region=north", "region=south", "region=west"]
    # The released numbers predict by themselves: west earns more.
    assert release["slopes"][3] - release["slopes"][1] == pytest.approx(0.6, abs=0.1)
    classified = run_linear(
        Task.of(table, "rich", ["age", "region"], test_fraction=0.2), Guarantee(5.0, 1e-6)
    ).to_dict()
    assert classified["test_accuracy"] > classified["constant"] + 0.1
    assert classified["plain"] >= classified["test_accuracy"] - 0.02


def _predicted(model, row):
    """By the words of model.json alone."""

    def entry(part):
        value = row[part["column"]]
        if "category" in part:
            return float(value == part["category"])
        return (min(max(value, part["lower"]), part["upper"]) - part["lower"]) / (part["upper"] - part["lower"])

    inputs = np.array([entry(part) for part in model["inputs"]])
    score = np.array(model["intercept"]) + inputs @ np.array(model["slopes"])
    if "classes" in model:
        return model["classes"][int(np.argmax(score))]
    lower, upper = model["target_bounds"]
    return (lower + upper) / 2 + score * (upper - lower) / 2


def test_the_published_model_is_enough_to_predict_with():
    frame, table = _table()
    rows = frame.to_dict("records")
    number, code = (
        run_linear(Task.of(table, target, ["age", "region"], test_fraction=0.2), Guarantee(20.0, 1e-6))
        for target in ("pay", "rich")
    )
    inputs = next(table.chunks(("age", "region"), "pay")).inputs
    model = json.loads(to_json(number.release()))
    found = [_predicted(model, row) for row in rows]
    assert found == pytest.approx(50 + 50 * number.model.scores(inputs))
    assert np.mean(np.abs(found - frame["pay"])) < 6
    model = json.loads(to_json(code.release()))
    assert [_predicted(model, row) for row in rows] == [code.task.classes[at] for at in code.model.classes(inputs)]


def test_only_the_first_fit_is_paid_for(tmp_path):
    account = Ledger.create(tmp_path / "book.sqlite", dataset="t", budget=Budget(1.0, 1e-6)).account("t")
    _, table = _table(300)
    task = Task.of(table, "pay", test_fraction=0.2, features=["age"])
    run_linear(task, Guarantee(1.0, 1e-6), repeats=3, terms=Terms(account))
    assert len(account.entries()) == 1


@pytest.mark.parametrize(
    ("delta", "examples", "warned"), [(1e-3, 1000, True), (0.9e-3, 1000, False), (0.5, None, False), (0.0, 10, False)]
)
def test_a_delta_of_one_row_in_all_is_a_caveat(delta, examples, warned):
    """Where the number of rows is public; else it must not show in a statement."""
    _, table = _table(300)
    fitted = fit_table(Task.of(table, "pay", ["age"]), Guarantee(1.0, delta), examples=examples)
    assert ("publishing one random row whole" in str(fitted.statement)) == warned


def test_a_statement_says_which_rows_it_protects():
    _, table = _table(300)
    for fraction, split_seed, dealt in ((0.0, None, False), (0.2, None, True), (0.2, 3, True)):
        task = Task.of(table, "pay", ["age"], test_fraction=fraction, split_seed=split_seed)
        statement = fit_table(task, Guarantee(1.0, 1e-6)).statement
        assert ("the training rows as they were dealt" in str(statement)) == dealt
        assert ("rows for testing are not protected" in str(statement)) == dealt


def test_a_curve_has_a_row_for_each_method_and_epsilon():
    _, table = _table(1000)
    task = Task.of(table, "pay", ["age", "region"], test_fraction=0.2)
    guarantee = Guarantee(1.0, 1e-6)
    rows = error_curves(task, guarantee, "newton", repeats=2, epsilons=(0.1, 50.0))
    assert [(row["method"], row["delta"], row["epsilon"]) for row in rows] == [
        ("newton", 1e-6, 0.1),
        ("newton", 1e-6, 50.0),
        ("functional", 0.0, 0.1),
        ("functional", 0.0, 50.0),
    ]
    assert rows[0]["median"] > rows[1]["median"]
    result = run_linear(task, guarantee)
    curve = split_curve(result, guarantee, 1000)
    assert curve["default_excess"] <= min(curve["excess"]) * (1 + 1e-6)
    assert curve["default_excess"] < curve["even_excess"]


def test_an_even_sample_is_small_and_spread():
    sample = _EvenSample(100)
    for start in range(0, 5000, 250):
        sample.add(np.stack([np.arange(start, start + 250), np.zeros(250)], axis=1))
    places = sample.rows[:, 0]
    assert 50 < len(places) <= 100
    assert np.ptp(np.diff(places)) == 0
    assert places[-1] > 4800


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.assign(pay=50.0), "has the same value in every row for testing"),
        (lambda frame: frame.assign(age=np.nan), "column 'age': row 1"),
        (lambda frame: frame.assign(age=11.0), "lies outside"),
        (lambda frame: frame.drop(columns="age"), "has no column 'age'"),
    ],
)
def test_bad_tables_are_named(change, message):
    frame, _ = _table(100)
    task = Task.of(Table.open(change(frame), _SCHEMA), "pay", ["age"], test_fraction=0.3)
    with pytest.raises(InputError) as error:
        run_linear(task, Guarantee(1.0, 1e-6))
    assert message in str(error.value)
