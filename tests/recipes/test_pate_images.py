"""PATE's published runs again, on small data of the same form."""

import dataclasses

import numpy as np
import pytest

from tacit.core.errors import InputError
from tacit.core.plain import to_json
from tacit.core.privacy import Budget, Neighbours
from tacit.ledger import Ledger
from tacit.pate.experiment import run_pate
from tacit.recipes import RECIPES, pate_images, run_recipe
from tacit.recipes.conditions import Conditions


def quiet(*_: object) -> None:
    return None


@pytest.mark.parametrize(
    ("name", "seeds", "changes"),
    [
        ("pate2017-svhn", 2, {"queries": "10", "teachers": "6", "gamma": "1"}),
        (
            "pate2018-svhn",
            1,
            {"queries": "10", "teachers": "6", "sigma": "1", "threshold": "3", "sigma_threshold": "1"},
        ),
        ("private-knn-svhn", 1, {"queries": "10", "voters": "3", "sampling_rate": "0.5", "sigma": "0.3"}),
    ],
)
def test_a_recipe_reads_the_official_format_and_says_what_it_cost(small_svhn, request, name, seeds, changes):
    if seeds == 1:  # one student of so few steps may stay at chance: what it learns is looked at in two
        request.getfixturevalue("hasty_student")
    result = run_recipe(RECIPES[name], changes, Conditions(seeds=seeds), quiet)
    assert result["beside"]["answers right"] > 0.8
    assert max(result["accuracies"]) > 0.8 or seeds == 1
    assert len(result["accuracies"]) == result["seeds"] == seeds
    assert result["delta"] == 1e-6
    assert 0 < result["epsilon"] <= result["epsilons"]["whatever the votes"]
    assert result["epsilon_is_private"] == (name != "private-knn-svhn")
    assert (result["epsilon_note"] is None) == (name == "private-knn-svhn")
    assert result["published"] is None  # so few queries are nobody's figure
    assert "by " in result["statement"]
    assert result["training"]["student"] == "ensemble"


def test_published_figures_stand_beside_their_numbers_of_queries():
    figures = {
        (recipe.name, figure.note): (figure.epsilon, figure.accuracy)
        for recipe in pate_images.RECIPES
        for figure in recipe.published
    }
    assert figures[("pate2017-mnist", "100 queries")] == (2.04, 0.98)
    assert figures[("pate2017-mnist", "1000 queries")] == (8.03, 0.981)
    assert figures[("pate2017-svhn", "500 queries")] == (5.04, 0.827)
    assert figures[("pate2017-svhn", "1000 queries")] == (8.19, 0.9066)
    assert figures[("private-knn-mnist", "735 queries")] == (0.47, 0.988)
    assert dataclasses.asdict(RECIPES["pate2018-mnist"].knobs)["queries"] == 640


def test_wrong_settings_are_refused():
    with pytest.raises(InputError, match="is no knob"):
        RECIPES["pate2017-mnist"].check({"colour": "red"})


@pytest.fixture
def runs(monkeypatch):
    """The plan and the outcome of every run."""
    seen = []

    def spy(data, plan, *arguments, **options):
        seen.append((plan, run_pate(data, plan, *arguments, **options)))
        return seen[-1][1]

    monkeypatch.setattr(pate_images, "run_pate", spy)
    return seen


def test_an_account_pays_for_every_seed_and_no_figure_tells_of_the_votes(hasty_student, runs, tmp_path):
    relation = Neighbours.REPLACE_ONE
    book = Ledger.create(tmp_path / "b.sqlite", dataset="svhn", budget=Budget(1e4, 1e-6), neighbours=relation)
    changes = {"queries": "5", "teachers": "6", "gamma": "1"}
    conditions = Conditions(seeds=2, account=book.account("svhn"))
    result = run_recipe(RECIPES["pate2017-svhn"], changes, conditions, quiet)
    entries = book.account("svhn").entries()
    assert [(entry.run, entry.steps_drawn) for entry in entries] == [
        ("lnmax on svhn, seed 0", 5),
        ("lnmax on svhn, seed 1", 5),
    ]
    assert [plan.seed for plan, _ in runs] == [0, 1]
    assert result["epsilon"] == result["epsilons"]["whatever the votes"]
    assert result["epsilon"] == pytest.approx(np.mean([run.epsilon_data_independent for _, run in runs]))
    assert (result["epsilon_is_private"], result["epsilon_note"]) == (False, None)
    private = [run.epsilon.unsafe_value for _, run in runs]
    assert all(epsilon < result["epsilon"] for epsilon in private)
    assert not any(repr(epsilon) in to_json(result) for epsilon in [*private, float(np.mean(private))])


@pytest.mark.parametrize("public", ["first", "last"])
def test_either_part_of_the_test_split_is_public(small_svhn, hasty_student, runs, public):
    """What the student is tested on is the part that nobody asked for."""
    small_svhn.test.targets[:20], small_svhn.test.targets[20:] = 0, 1  # the halves differ in their labels alone
    changes = {"queries": "5", "teachers": "6", "gamma": "1", "public": public}
    assert run_recipe(RECIPES["pate2017-svhn"], changes, Conditions(), quiet)["knobs"]["public"] == public
    assert set(runs[0][1].truth) == ({0} if public == "first" else {1})


def test_fashion_stands_beside_the_digits():
    names = {f"{way}-{data}" for way in ("pate2017", "pate2018", "private-knn") for data in ("mnist", "fashion-mnist")}
    assert names <= RECIPES.keys()
    for name in names:
        RECIPES[name].check({"public": "last"})
