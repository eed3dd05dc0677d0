"""The estimators: scikit-learn's conventions, frames, bounds that are stated, and budgets."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from tacit.core.errors import BudgetExceededError, InputError
from tacit.core.privacy import Budget, Neighbours
from tacit.datasets.tables import as_schema
from tacit.ledger import Ledger
from tacit.linear import LinearRegression, LogisticRegression, estimators

# The labels that there may be are stated, and these checks bring others.
_OTHER_LABELS = "labels are a public list, and this check's are others"
_EXPECTED = {
    "check_dtype_object": _OTHER_LABELS,
    "check_classifiers_one_label": "that all rows have one label is private, so that noise may hide it",
    "check_classifiers_classes": _OTHER_LABELS,
    "check_classifiers_train": _OTHER_LABELS,
    "check_decision_proba_consistency": "two labels of the three that there may be: scores have three columns",
}


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (LinearRegression(bounds=(-100, 100), target_bounds=(-1000, 1000), unsafe_seed=0), {}),
        (LogisticRegression(bounds=(-100, 100), classes=(0, 1, 2), unsafe_seed=0), _EXPECTED),
    ],
    ids=["regression", "classification"],
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator, expected):
    results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=expected)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert not failed
    excused = {result["check_name"] for result in results if result["status"] == "xfail"}
    assert excused == expected.keys()  # none is excused that passes


def _frame(count=3000):
    stream = np.random.default_rng(0)
    frame = pd.DataFrame({"age": stream.uniform(18, 90, count), "member": stream.integers(0, 2, count)})
    pay = 300 * frame["age"] + 10_000 * frame["member"] + 1000 * stream.standard_normal(count)
    return frame, pay


_BOUNDS = {"age": (18, 93), "member": (0, 1)}


@pytest.mark.parametrize("as_frame", [pd.DataFrame, lambda frame: pl.from_pandas(frame)], ids=["pandas", "polars"])
def test_frames_are_fitted_by_names_in_their_own_units(as_frame):
    frame, pay = _frame()
    model = LinearRegression(epsilon=20.0, bounds=_BOUNDS, target_bounds=(0, 50_000)).fit(as_frame(frame), pay)
    assert list(model.feature_names_in_) == ["age", "member"]
    assert model.coef_ == pytest.approx([300, 10_000], rel=0.1)
    by_hand = frame.to_numpy() @ model.coef_ + model.intercept_
    assert model.predict(as_frame(frame)) == pytest.approx(by_hand)
    assert model.score(as_frame(frame), pay) > 0.95


def test_a_schema_gives_the_bounds():
    frame, pay = _frame()
    model = LinearRegression(epsilon=20.0, bounds=_schema(), target_bounds="pay").fit(frame, pay)
    assert model.score(frame, pay) > 0.95


def _schema():
    return as_schema(
        {
            "columns": {
                "age": {"type": "number", "lower": 18, "upper": 93},
                "member": {"type": "boolean"},
                "pay": {"type": "number", "lower": 0, "upper": 50_000},
            }
        }
    )


def test_labels_keep_their_names_and_probabilities_add_up():
    frame, pay = _frame()
    labels = np.where(pay > pay.median(), "rich", "poor")
    model = LogisticRegression(epsilon=20.0, bounds=_BOUNDS, classes=("poor", "rich")).fit(frame, labels)
    assert model.classes_.tolist() == ["poor", "rich"]
    assert model.score(frame, labels) > 0.95
    chances = model.predict_proba(frame)
    assert chances.sum(axis=1) == pytest.approx(1)
    assert ((model.decision_function(frame) > 0) == (model.predict(frame) == "rich")).all()
    assert model.decision_function(frame) == pytest.approx(
        frame.to_numpy() @ model.coef_[0] + model.intercept_[0], abs=1e-6
    )


def test_clones_and_pipelines():
    frame, pay = _frame(600)
    model = LinearRegression(epsilon=5.0, bounds=(0, 100), target_bounds=(0, 50_000), neighbours="replace-one")
    assert clone(model).get_params() == model.get_params()
    scores = cross_val_score(make_pipeline(FunctionTransformer(), model), frame.to_numpy(), pay, cv=3)
    assert len(scores) == 3


def test_noise_is_fresh_and_seeding_numpy_changes_nothing():
    frame, pay = _frame(200)
    found = []
    for _ in range(2):
        np.random.seed(0)
        found.append(LinearRegression(bounds=_BOUNDS, target_bounds=(0, 50_000)).fit(frame, pay).coef_)
    assert (found[0] != found[1]).all()


def test_the_statement_says_what_is_promised():
    frame, pay = _frame(100)
    model = LinearRegression(epsilon=0.5, delta=0, bounds=_BOUNDS, target_bounds=(0, 1), neighbours="zero-out")
    statement = model.fit(frame, pay).statement()
    assert (statement.epsilon, statement.delta, statement.neighbours) == (0.5, 0, Neighbours.ZERO_OUT)
    assert "functional mechanism" in str(statement)
    assert not statement.caveats
    assert "seed" in str(clone(model).set_params(unsafe_seed=1).fit(frame, pay).statement())


def test_the_size_is_used_only_where_it_is_public(monkeypatch):
    """Under add-remove a row more must not change the plan: pitfall 01."""
    seen = []
    choose = estimators.choose_method

    def spy(name, problem, guarantee, *, split):
        seen.append(problem.examples)
        return choose(name, problem, guarantee, split=split)

    monkeypatch.setattr(estimators, "choose_method", spy)
    frame, pay = _frame(50)
    for settings in ({}, {"examples": 70}, {"neighbours": "replace-one"}):
        LinearRegression(bounds=_BOUNDS, target_bounds=(0, 1), **settings).fit(frame, pay)
    assert seen == [None, 70, 50]


def test_a_budget_pays_and_refuses(tmp_path):
    book = f"sqlite:///{tmp_path / 'book.sqlite'}"
    account = Ledger.create(book, dataset="people", budget=Budget(1.0, 1e-6)).account("people")
    frame, pay = _frame(100)
    model = LinearRegression(
        epsilon=0.9, delta=1e-6, bounds=_BOUNDS, target_bounds=(0, 1), ledger=book, dataset="people"
    )
    model.fit(frame, pay)
    assert account.spent() == pytest.approx(0.9, rel=1e-3)
    with pytest.raises(BudgetExceededError):
        model.fit(frame, pay)
    assert len(account.entries()) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bounds": None}, "bounds=None: the range of each feature must be stated"),
        ({"target_bounds": None}, "target_bounds=None"),
        ({"target_bounds": "pay"}, "bounds is no schema"),
        ({"target_bounds": (1, 0)}, "target_bounds="),
        ({"epsilon": 0}, "epsilon=0"),
        ({"neighbours": "twin"}, "neighbours='twin'"),
        ({"ledger": "sqlite:///x"}, "dataset=None"),
        ({"row_norm": -1}, "row_norm=-1"),
        ({"examples": 0}, "examples=0"),
    ],
)
def test_bad_settings_of_an_estimator_are_named(settings, message):
    frame, pay = _frame(20)
    model = LinearRegression(**({"bounds": _BOUNDS, "target_bounds": (0, 50_000)} | settings))
    with pytest.raises(InputError, match="=") as error:
        model.fit(frame, pay)
    assert message in str(error.value)


def test_labels_and_missing_values_are_refused():
    frame, pay = _frame(20)
    labels = np.where(pay > pay.median(), "rich", "poor")
    with pytest.raises(InputError, match="classes=None"):
        LogisticRegression(bounds=_BOUNDS).fit(frame, labels)
    with pytest.raises(InputError, match="'rich' is not among"):
        LogisticRegression(bounds=_BOUNDS, classes=("poor", "middling")).fit(frame, labels)
    frame.loc[3, "age"] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        LinearRegression(bounds=_BOUNDS, target_bounds=(0, 1)).fit(frame, pay)
