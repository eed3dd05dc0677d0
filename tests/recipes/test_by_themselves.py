"""Recipes that run by themselves, whichever it is: who pays for their models, and what Ctrl-C leaves of them."""

import json

import pytest

from tacit.core.errors import BudgetExceededError, InputError
from tacit.core.plain import to_json
from tacit.core.privacy import Budget, Neighbours
from tacit.ledger import Account, Ledger
from tacit.recipes import RECIPES, Conditions, SeedsInterrupted, run_recipe

ALONE = [name for name, recipe in RECIPES.items() if recipe.run is not None]
STEPS = {"batch_size": "50", "steps": "4"}
QUESTIONS = {"queries": "4"}
CENSUS = ("census-employed-linear", STEPS)
RECURRENT = ("tanh-filter-recurrent", {**STEPS, "length": "4", "examples": "200", "hidden": "4", "setting": "private"})
TEACHERS = ("pate2017-svhn", {**QUESTIONS, "teachers": "4", "gamma": "1"})

pytestmark = pytest.mark.usefixtures("census", "hasty_student")


def quiet(*_):
    pass


def settings_for(name):
    if name.startswith("pate"):
        return {**QUESTIONS, "teachers": "4"}
    if name.startswith("private-knn"):
        return {**QUESTIONS, "voters": "3", "sampling_rate": "0.5"}
    return RECURRENT[1] if name == RECURRENT[0] else STEPS


def account_for(name, place, epsilon=1e4):
    relation = Neighbours.REPLACE_ONE if name.startswith("pate") else Neighbours.ADD_REMOVE
    budget = Budget(epsilon, 1e-5)
    return Ledger.create(place / "book.sqlite", dataset="any", budget=budget, neighbours=relation).account("any")


class AskedError(Exception):
    """The account was asked for the first model."""


@pytest.mark.parametrize("name", ALONE)
def test_each_charges_an_account_or_refuses_it(name, tmp_path, monkeypatch):
    def reserve(self, event_for, steps, *, run, neighbours, unit, note=""):
        raise AskedError(run)

    monkeypatch.setattr(Account, "reserve", reserve)
    changes = {} if "votes" in name else settings_for(name)
    with pytest.raises((AskedError, InputError), match=r"seed 0|account: no budget pays") as ended:
        run_recipe(RECIPES[name], changes, Conditions(account=account_for(name, tmp_path)), quiet)
    assert (ended.type is InputError) == ("votes" in name)


@pytest.mark.parametrize(("name", "changes"), [CENSUS, RECURRENT, TEACHERS])
def test_an_account_that_does_not_hold_all_seeds_pays_for_none(name, changes, tmp_path):
    """Else the first would be paid for, and its figures lost with the refusal of the second."""
    whole = account_for(name, tmp_path)
    run_recipe(RECIPES[name], changes, Conditions(account=whole), quiet)
    (tmp_path / "small").mkdir()
    account = account_for(name, tmp_path / "small", epsilon=1.1 * whole.spent())
    with pytest.raises(BudgetExceededError):
        run_recipe(RECIPES[name], changes, Conditions(seeds=2, account=account), quiet)
    assert not account.entries()


@pytest.mark.parametrize(
    ("name", "changes", "module", "training"),
    [
        (*CENSUS, "tacit.recipes.census_employed", "fit"),
        (*RECURRENT, "tacit.recipes.tanh_filter_recurrent", "fit"),
        (*TEACHERS, "tacit.recipes.pate_images", "run_pate"),
    ],
)
def test_ctrl_c_leaves_the_result_of_the_seeds_that_had_ended(name, changes, module, training, ctrl_c):
    ctrl_c(f"{module}.{training}", 1)
    with pytest.raises(SeedsInterrupted, match=r"^interrupted after 1 of 3 seeds$") as stopped:
        run_recipe(RECIPES[name], changes, Conditions(seeds=3), quiet)
    result = stopped.value.found
    json.loads(to_json(result))
    assert (result["name"], result["seeds"], result["seeds_asked"], len(result["accuracies"])) == (name, 1, 3, 1)
    assert result["seconds"] == result["seconds_a_seed"]
    ctrl_c(f"{module}.seed_facts", 0)  # while the result is put together
    with pytest.raises(SeedsInterrupted, match=r"^interrupted after 1 of 1 seeds$") as stopped:
        run_recipe(RECIPES[name], changes, Conditions(), quiet)
    assert stopped.value.found.keys() == result.keys()
    assert stopped.value.found["seeds_asked"] == 1
