"""The pair of epsilons of 2017: on small votes against a slow oracle, and as it was measured on MNIST."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tacit.core.errors import InputError
from tacit.core.privacy import Budget
from tacit.datasets import DataSet, Split
from tacit.ledger import Ledger
from tacit.pate import count_votes, partition
from tacit.pate.linear_teachers import LinearFitting, LinearTeachers
from tacit.pate.public_features import PublicFeatures
from tacit.recipes import RECIPES, Conditions, SeedsInterrupted, pate2017_votes, read_results, run_recipe
from tacit.reporting.results_page import write_results_page

RECIPE = RECIPES["pate2017-votes-mnist"]
RESULTS = Path(__file__).parents[2] / "results"
CHANGES = {"teachers": "20", "gamma": "0.3", "directions": "12", "teacher_steps": "2"}
QUESTIONS = 1010


def quiet(*_: object) -> None:
    return None


@pytest.fixture
def small(monkeypatch) -> DataSet:
    """Small images of three classes that are hard to tell apart, and a few more questions than are counted."""
    generator = torch.Generator().manual_seed(0)
    splits = []
    for count in (300, QUESTIONS):
        targets = torch.randint(0, 3, (count,), generator=generator)
        images = torch.randn(count, 1, 4, 4, generator=generator)
        images[torch.arange(count), 0, targets, targets] += 2.0
        splits.append(Split(images, targets))
    data = DataSet("small", splits[0], splits[1], 3, (1, 4, 4), "made")
    monkeypatch.setattr(pate2017_votes, "load", lambda name: data if name == "mnist" else None)
    return data


def votes_of(data: DataSet, seed: int) -> np.ndarray:
    see = PublicFeatures.learn(data.test.inputs, directions=12, whitening=RECIPE.knobs.whitening)
    records = Split(see(data.train.inputs), data.train.targets)
    parts = partition(len(data.train), 20, seed=seed)
    teachers = LinearTeachers.train(records, 3, parts, LinearFitting(steps=2))
    return count_votes(teachers.predictions(see(data.test.inputs)), 3)


def slow_epsilon(votes: np.ndarray, gamma: float, delta: float) -> float:
    """Theorems 1 to 3 and lemma 4 of the paper, one question and one moment after another."""
    best = math.inf
    for order in range(1, 9):
        total = 0.0
        for row in votes.tolist():
            gaps = sorted(max(row) - count for count in row)[1:]
            q = min(sum((2 + gamma * gap) / (4 * math.exp(gamma * gap)) for gap in gaps), 1 - 1 / len(row))
            cost = min(2 * gamma * order, 2 * gamma**2 * order * (order + 1))
            if q < (math.exp(2 * gamma) - 1) / (math.exp(4 * gamma) - 1):
                usual = (1 - q) * ((1 - q) / (1 - math.exp(2 * gamma) * q)) ** order
                cost = min(cost, math.log(usual + q * math.exp(2 * gamma * order)))
            total += cost
        best = min(best, (total - math.log(delta)) / order)
    return best


def test_the_pair_is_that_of_a_slow_oracle_on_the_first_votes_of_every_partition(small):
    result = run_recipe(RECIPE, CHANGES, Conditions(seeds=2), quiet)
    assert [one["seed"] for one in result["partitions"]] == [0, 1]
    truth = small.test.targets.numpy()
    pairs = []
    for one in result["partitions"]:
        votes = votes_of(small, one["seed"])
        pairs.append([slow_epsilon(votes[:count], 0.3, 1e-5) for count in (100, 1000)])
        assert list(one["epsilons"].values()) == pytest.approx(pairs[-1], rel=1e-6)
        assert one["teacher_right"] == pytest.approx(np.mean([votes[k, truth[k]] / 20 for k in range(QUESTIONS)]))
        assert abs(one["answers_right"] - np.mean(votes.argmax(1) == truth)) < 0.2
    assert pairs[0] != pairs[1]
    few, many = np.mean(pairs, axis=0)
    told = result["epsilons"]
    assert told["100 questions"] == pytest.approx(few, rel=1e-6)
    assert told["1000 questions"] == result["epsilon"] == pytest.approx(many, rel=1e-6)
    assert (told["100 questions, published"], told["1000 questions, published"]) == (2.04, 8.03)
    assert "1010 answers by lnmax" in result["statement"]


def test_no_account_pays_for_figures_that_tell_of_the_votes(small, tmp_path, monkeypatch):
    monkeypatch.setattr(pate2017_votes, "load", None)
    book = Ledger.create(tmp_path / "b.sqlite", dataset="small", budget=Budget(1e4, 1e-5))
    with pytest.raises(InputError, match="account: no budget pays for what these settings show without noise"):
        run_recipe(RECIPE, CHANGES, Conditions(account=book.account("small")), quiet)


def test_ctrl_c_leaves_the_result_of_the_partitions_that_had_ended(small, ctrl_c):
    ctrl_c("tacit.recipes.pate2017_votes.ask", 1)
    with pytest.raises(SeedsInterrupted, match=r"^interrupted after 1 of 2 seeds$") as stopped:
        run_recipe(RECIPE, CHANGES, Conditions(seeds=2), quiet)
    result = stopped.value.found
    assert (result["seeds"], result["seeds_asked"], len(result["partitions"])) == (1, 2, 1)


@pytest.mark.parametrize("change", ["teachers=0", "gamma=0", "whitening=-1", "teacher_steps=0", "delta=1"])
def test_bad_knobs_are_refused_before_anything_is_loaded(change):
    name, value = change.split("=")
    with pytest.raises(InputError, match=name):
        RECIPE.check({name: value})


def test_the_pair_that_was_measured_is_the_published_one_within_a_tenth():
    measured = json.loads((RESULTS / "pate2017-votes-mnist.json").read_text(encoding="utf-8"))
    assert measured["knobs"] == {**measured["knobs"], "teachers": 250, "gamma": 0.05, "delta": 1e-5}
    assert measured["seeds"] == len(measured["partitions"]) >= 3
    assert measured["epsilons"]["100 questions"] == pytest.approx(2.04, rel=0.1)
    assert measured["epsilons"]["1000 questions"] == pytest.approx(8.03, rel=0.1)
    assert measured["measured"] >= 0.932


def test_the_page_shows_the_pair_beside_the_published_one(tmp_path):
    name = "pate2017-votes-mnist.json"
    (tmp_path / name).write_text((RESULTS / name).read_text(encoding="utf-8"), encoding="utf-8")
    page, figures = write_results_page(tmp_path, *read_results(tmp_path), [])
    text = page.read_text(encoding="utf-8")
    assert "Measured is the share of noisy answers that are right." in text
    header = next(line for line in text.splitlines() if "epsilon, 100 questions" in line)
    assert "| epsilon, 1000 questions | epsilon, 1000 questions, published |" in header
    assert not any(figure.stem.startswith("frontier") for figure in figures)  # answers are no model to be released
