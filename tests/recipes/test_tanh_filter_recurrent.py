"""The recurrent recipe: four ways to train, two of them private, on the adding problem."""

import json

import pytest
import torch

from tacit.core.errors import InputError
from tacit.core.plain import to_json
from tacit.core.privacy import Budget
from tacit.datasets.adding import adding
from tacit.ledger import Ledger
from tacit.models import SequenceReader
from tacit.recipes import RECIPES, Conditions, run_recipe
from tacit.recipes.sweeping import read_axes, run_sweep
from tacit.recipes.tanh_filter_recurrent import explained

RECIPE = RECIPES["tanh-filter-recurrent"]
SMALL = {"length": "6", "examples": "400", "hidden": "8", "batch_size": "50", "steps": "20"}


def quiet(*_):
    pass


def run(setting, **settings):
    return run_recipe(RECIPE, {**SMALL, "setting": setting, **settings}, Conditions(), quiet)


@pytest.mark.parametrize("setting", ["plain", "filtered", "private", "private-filtered"])
def test_every_setting_runs_and_says_what_it_guarantees(setting):
    result = run(setting)
    json.loads(to_json(result))
    assert result["name"] == RECIPE.name
    assert 0 <= result["measured"] <= 1
    assert result["history"][-1]["accuracy"] == result["measured"]
    if setting.startswith("private"):
        assert 7.9 < result["epsilon"] <= 8
        assert "differentially private" in result["statement"]
        assert ("tanh" in result["statement"]) == setting.endswith("filtered")
    else:
        assert result["epsilon"] is None
        assert "No guarantee" in result["statement"]


def test_an_account_pays_for_what_is_private_and_for_nothing_else(tmp_path, monkeypatch):
    book = Ledger.create(tmp_path / "book.sqlite", dataset="adding", budget=Budget(20.0, 1e-4))
    conditions = Conditions(seeds=2, account=book.account("adding"))
    run_recipe(RECIPE, {**SMALL, "setting": "private"}, conditions, quiet)
    assert [(entry.run, entry.steps_drawn) for entry in book.account("adding").entries()] == [
        ("tanh-filter-recurrent, seed 0", 20),
        ("tanh-filter-recurrent, seed 1", 20),
    ]
    monkeypatch.setattr("tacit.recipes.tanh_filter_recurrent.adding", None)  # refused before it is made
    with pytest.raises(InputError, match="no budget pays"):
        run_recipe(RECIPE, {**SMALL, "setting": "plain"}, conditions, quiet)


def test_plain_training_explodes_where_the_filter_does_not():
    wild = {"learning_rate": "1e6", "steps": "40"}
    assert run("plain", **wild)["measured"] == 0
    assert run("filtered", **wild, c="1e-8", k="0.1")["measured"] > 0


def test_weights_that_are_not_finite_explain_nothing():
    model = SequenceReader(2, 8, 1)
    torch.nn.init.constant_(model.head.weight, float("nan"))
    assert explained(model, adding(6, train_examples=10, test_examples=100)) == 0


def test_held_out_sequences_are_not_the_test_set():
    result = run_recipe(RECIPE, {**SMALL, "setting": "plain"}, Conditions(held_out=True), quiet)
    assert "80 held-out" in result["measured_on"]


def test_wrong_settings_are_refused():
    with pytest.raises(InputError, match="setting"):
        RECIPE.check({"setting": "other"})
    with pytest.raises(InputError, match="is no knob"):
        RECIPE.check({"depth": "3"})
    with pytest.raises(InputError, match="no sweeps"):
        run_sweep(RECIPE, read_axes(["c=1,2"]), {}, Conditions(), quiet)
