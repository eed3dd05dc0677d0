"""PATE's published runs again, on small data of the same form."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from scipy.io import savemat

from tacit.core.errors import InputError
from tacit.core.privacy import Budget, Neighbours
from tacit.datasets import DataSet, Split
from tacit.datasets.svhn import read_svhn
from tacit.ledger import Ledger
from tacit.models.norm_cnn import norm_cnn
from tacit.pate import settings
from tacit.pate.experiment import run_pate
from tacit.pate.students import Perceptron, RunningTargets, SelfTraining, StudentEnsemble
from tacit.recipes import RECIPES, SeedsInterrupted, pate_images, run_recipe
from tacit.recipes.conditions import Conditions


def quiet(*_: object) -> None:
    return None


@pytest.fixture
def small_svhn(tmp_path, monkeypatch) -> DataSet:
    """Bright and dark images, in files as SVHN's are."""
    splits = []
    for name, count in (("train", 60), ("test", 40)):
        labels = np.resize([1, 10], count).astype(np.uint8)[:, None]
        noise = np.random.default_rng(count).integers(0, 60, (32, 32, 3, count))
        images = np.where(labels.ravel() == 1, 20, 170) + noise
        images[8:20, 8:20] //= 2
        savemat(tmp_path / f"{name}_32x32.mat", {"X": images.astype(np.uint8), "y": labels})
        pixels, digits = read_svhn(tmp_path / f"{name}_32x32.mat")
        splits.append(Split(torch.from_numpy(pixels).float() / 255, torch.from_numpy(digits).long()))
    data = DataSet("svhn", splits[0], splits[1], 10, (3, 32, 32), "made")
    monkeypatch.setattr(pate_images, "load", lambda name: data if name == "svhn" else None)
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path))
    quick = SelfTraining(steps=25, rounds=1, batch_size=16, average=0.8)
    monkeypatch.setattr(settings, "SelfTraining", lambda rounds: dataclasses.replace(quick, rounds=rounds))
    small = StudentEnsemble(
        1, 1, RunningTargets(steps=40, batch_size=16, average=0.8), Perceptron(32, steps=60, views=1)
    )
    monkeypatch.setattr(settings, "StudentEnsemble", lambda **_: small)
    monkeypatch.setattr(settings, "build", lambda _name, shape, classes: norm_cnn(shape, classes, width=8))
    return data


@pytest.fixture
def hasty_student(small_svhn, monkeypatch) -> None:
    """For what does not depend on how well a student learns."""
    monkeypatch.setattr(settings, "SelfTraining", lambda rounds: SelfTraining(steps=2, rounds=1))
    hasty = StudentEnsemble(1, 1, RunningTargets(steps=2, batch_size=8), Perceptron(8, steps=2, views=1))
    monkeypatch.setattr(settings, "StudentEnsemble", lambda **_: hasty)


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
def test_a_recipe_reads_the_official_format_and_says_what_it_cost(small_svhn, name, seeds, changes):
    result = run_recipe(RECIPES[name], changes, Conditions(seeds=seeds), quiet)
    assert result["beside"]["answers right"] > 0.8
    assert max(result["accuracies"]) > 0.8 or seeds == 1  # one student of so few steps may stay at chance
    assert len(result["accuracies"]) == result["seeds"] == seeds
    assert result["delta"] == 1e-6
    assert 0 < result["epsilon"] <= result["epsilons"]["whatever the votes"]
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


def test_every_seed_of_a_recipe_is_charged_to_the_account(hasty_student, tmp_path):
    relation = Neighbours.REPLACE_ONE
    book = Ledger.create(tmp_path / "b.sqlite", dataset="svhn", budget=Budget(1e4, 1e-6), neighbours=relation)
    changes = {"queries": "5", "teachers": "6", "gamma": "1"}
    conditions = Conditions(seeds=2, account=book.account("svhn"))
    run_recipe(RECIPES["pate2017-svhn"], changes, conditions, quiet)
    assert [entry.steps_drawn for entry in book.account("svhn").entries()] == [5, 5]


@pytest.mark.parametrize("public", ["first", "last"])
def test_either_part_of_the_test_split_is_public(small_svhn, hasty_student, monkeypatch, public):
    """What the student is tested on is the part that nobody asked for."""
    small_svhn.test.targets[:20], small_svhn.test.targets[20:] = 0, 1  # the halves differ in their labels alone
    seen = []

    def spy(*arguments, **names):
        seen.append(run_pate(*arguments, **names))
        return seen[-1]

    monkeypatch.setattr(pate_images, "run_pate", spy)
    changes = {"queries": "5", "teachers": "6", "gamma": "1", "public": public}
    assert run_recipe(RECIPES["pate2017-svhn"], changes, Conditions(), quiet)["knobs"]["public"] == public
    assert set(seen[0].truth) == ({0} if public == "first" else {1})


def test_ctrl_c_leaves_the_result_of_the_seeds_that_had_ended(hasty_student, monkeypatch):
    runs = itertools.count()

    def stopped_in_the_second(*arguments, **options):
        if next(runs) == 1:
            raise KeyboardInterrupt
        return run_pate(*arguments, **options)

    monkeypatch.setattr(pate_images, "run_pate", stopped_in_the_second)
    with pytest.raises(SeedsInterrupted, match="interrupted after 1 of 3 seeds") as stopped:
        run_recipe(RECIPES["pate2017-svhn"], {"queries": "4", "teachers": "4"}, Conditions(seeds=3), quiet)
    result = stopped.value.found
    assert (result["name"], result["seeds"], len(result["accuracies"])) == ("pate2017-svhn", 1, 1)


def test_fashion_stands_beside_the_digits():
    names = {f"{way}-{data}" for way in ("pate2017", "pate2018", "private-knn") for data in ("mnist", "fashion-mnist")}
    assert names <= RECIPES.keys()
    for name in names:
        RECIPES[name].check({"public": "last"})
