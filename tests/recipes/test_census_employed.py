"""The census recipes: which columns they read, what they say beside a private figure, and that they learn."""

import json

import numpy as np
import pytest
import torch

from tacit.core.errors import InputError
from tacit.core.plain import to_json
from tacit.core.privacy import Budget
from tacit.ledger import Ledger
from tacit.recipes import RECIPES, Conditions, census_employed, run_recipe

LINEAR, NETWORK = RECIPES["census-employed-linear"], RECIPES["census-employed-network"]
SMALL = {"batch_size": "200", "steps": "20", "epsilon": "8"}

pytestmark = pytest.mark.usefixtures("census")


def quiet(*_):
    pass


def test_the_ten_columns_and_all_of_them(census):
    ten = census_employed.load_census("ten")
    assert ten.feature_names == (
        *("sex", "married", "black", "asian", "college", "militaryservice", "uscitizen", "disability"),
        *("englishability", "black_female"),
    )
    rows = np.concatenate([ten.train.inputs.numpy(), ten.test.inputs.numpy()])
    assert rows[:, 4].sum() == (census["educ"] >= 13).sum()
    assert rows[:, 9].sum() == (census["black"] * census["sex"]).sum()
    everything = census_employed.load_census("all")
    assert everything.columns.count(("category", 16)) == 1
    assert len(everything.columns) == 14
    assert not {"state", "fips", "college", "black_female", "employed"} & set(everything.feature_names)


@pytest.mark.parametrize(("recipe", "setting"), [(LINEAR, "ten"), (NETWORK, "all")])
def test_a_run_says_what_it_guarantees_and_what_stands_beside_it(recipe, setting):
    result = run_recipe(recipe, {**SMALL, "setting": setting}, Conditions(seeds=2), quiet)
    json.loads(to_json(result))
    assert 7.9 < result["epsilon"] <= 8
    assert result["delta"] == 1e-5
    assert "differentially private" in result["statement"]
    assert result["measured"] == pytest.approx(np.mean(result["accuracies"]))
    assert set(result["beside"]) == {"AUC", "plain logistic regression", "its AUC", "constant answer"}
    assert result["beside"]["AUC"] == result["auc"] > 0.7
    assert result["beside"]["its AUC"] > 0.75
    assert len(result["history"]) == 2 * 20
    assert result["history"][-1]["accuracy"] == result["accuracies"][-1]


def test_every_seed_is_charged_to_the_account_and_no_figure_is_without_privacy(tmp_path):
    book = Ledger.create(tmp_path / "book.sqlite", dataset="pums", budget=Budget(20.0, 1e-4))
    result = run_recipe(LINEAR, SMALL, Conditions(seeds=2, account=book.account("pums")), quiet)
    assert [(entry.run, entry.steps_drawn) for entry in book.account("pums").entries()] == [
        ("linear on fulton.csv, seed 0", 20),
        ("linear on fulton.csv, seed 1", 20),
    ]
    assert set(result["beside"]) == {"AUC"}


def test_the_area_under_the_curve_is_the_chance_that_a_pair_is_in_order():
    data = census_employed.load_census("ten")
    torch.manual_seed(0)
    model = torch.nn.Linear(10, 2)
    with torch.no_grad():
        scores = model(data.test.inputs).softmax(1)[:, 1]
    yes, no = scores[data.test.targets == 1], scores[data.test.targets == 0]
    pairs = (yes[:, None] > no).float() + 0.5 * (yes[:, None] == no).float()
    assert census_employed._area(model, data) == pytest.approx(float(pairs.mean()), abs=1e-4)


def test_held_out_rows_come_from_the_training_split():
    result = run_recipe(LINEAR, SMALL, Conditions(held_out=True), quiet)
    whole = len(census_employed.load_census("ten").train)
    assert result["measured_on"] == f"{whole // 5} held-out training rows"
    assert result["plan"]["examples"] == whole - whole // 5


def test_bad_knobs():
    with pytest.raises(InputError, match="setting='most': must be one of"):
        LINEAR.check({"setting": "most"})
    with pytest.raises(InputError, match="epsilon=0"):
        run_recipe(LINEAR, {**SMALL, "epsilon": "0"}, Conditions(), quiet)
