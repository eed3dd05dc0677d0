"""Several models at a time: what is refused before any process starts, and which seeds are trained."""

import dataclasses
import itertools
import pickle
from unittest import mock

import pytest
import torch
from small_recipe import MODERATE, small_configuration, small_recipe

from tacit.core.errors import InputError
from tacit.core.privacy import Budget
from tacit.datasets import load
from tacit.ledger import Ledger
from tacit.recipes import RECIPES, Conditions, SeedsInterrupted, find_subject, read_axes, run_recipe, run_sweep
from tacit.recipes.measuring import measure
from tacit.recipes.recipe import Configuration


@dataclasses.dataclass(frozen=True)
class Knobs:
    epsilon: float = 3.0


def configure(knobs):
    return small_configuration(steps=2, epsilon=knobs.epsilon)


def quiet(*_):
    pass


@pytest.fixture(autouse=True)
def no_process(monkeypatch):
    monkeypatch.setattr("tacit.recipes.many_models.in_processes", None)


def test_seeds_are_counted_from_the_first():
    starts = []

    def model(shape, classes):
        starts.append(torch.initial_seed())
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))

    configuration = small_configuration(steps=2, epsilon=3.0, model=model)
    outcome = measure(configuration, Conditions(seeds=2), quiet, first_seed=3)
    assert starts == [3, 4]
    assert [point["seed"] for point in outcome.history if point["step"] == 2] == [3, 4]


@pytest.mark.parametrize("jobs", [0, -1, 1.5])
def test_jobs_are_counted(jobs):
    with pytest.raises(InputError, match=f"jobs={jobs}"):
        Conditions(jobs=jobs)


def test_models_that_an_account_pays_for_come_one_after_another(tmp_path):
    book = Ledger.create(tmp_path / "l.db", dataset="digits", budget=Budget(3.0, 1e-5))
    with pytest.raises(InputError, match="jobs=2: models that an account pays for are trained one after another"):
        Conditions(jobs=2, account=book.account("digits"))


def test_recipes_that_run_by_themselves_take_no_jobs():
    with pytest.raises(InputError, match=r"jobs=2: pate2017-mnist runs by itself.* Leave out jobs"):
        run_recipe(RECIPES["pate2017-mnist"], {}, Conditions(jobs=2), quiet)


def test_recipes_that_cannot_be_sent_are_refused():
    recipe = small_recipe(Knobs(), lambda knobs: configure(knobs), (MODERATE,))
    with pytest.raises(InputError, match="jobs=2: recipe 'small' cannot be sent to other processes"):
        run_recipe(recipe, {}, Conditions(seeds=2, jobs=2), quiet)


def test_lots_that_held_out_examples_make_too_large_are_refused():
    with pytest.raises(InputError, match="batch_size=1300"):
        run_recipe(find_subject("digits"), {"batch_size": "1300"}, Conditions(seeds=2, jobs=2, held_out=True), quiet)


def test_a_single_model_needs_no_other_process():
    result = run_sweep(find_subject("digits"), read_axes(["steps=2"]), {}, Conditions(jobs=8), quiet)
    assert result["jobs"] == 8
    assert len(result["rows"]) == 1


def test_another_process_makes_the_same_configuration_of_smaller_lots(monkeypatch):
    """Here in one process, by way of what would be sent to others, and back to front."""
    told = []

    def backwards(work, items, jobs, tell):
        outcomes = [work(pickle.loads(pickle.dumps(item))) for item in reversed(items)]
        for outcome in outcomes:
            tell(outcome)
        return outcomes[::-1]

    monkeypatch.setattr("tacit.recipes.many_models.in_processes", backwards)
    axes, held_out = read_axes(["steps=2,3"]), Conditions(seeds=2, held_out=True)
    digits, several = find_subject("digits"), dataclasses.replace(held_out, jobs=2)
    alone = run_sweep(digits, axes, {}, held_out, quiet, smaller_lots=4)
    found = run_sweep(digits, axes, {}, several, lambda *done: told.append(done), smaller_lots=4)
    for key in ("steps", "epsilon", "noise_multiplier", "full_epsilon"):
        assert [row[key] for row in found["rows"]] == [row[key] for row in alone["rows"]]
    assert [(model, step, steps) for model, step, steps, *_ in told] == [(0, 3, 3), (1, 3, 3), (2, 2, 2), (3, 2, 2)]
    result = run_recipe(digits, {"steps": "2"}, several, quiet)
    assert len(result["accuracies"]) == 2
    assert [point["seed"] for point in result["history"] if point["step"] == 2] == [0, 1]


def test_ctrl_c_leaves_the_result_of_the_seeds_that_had_ended_in_other_processes(monkeypatch):
    def some_of_them(work, items, jobs, tell):
        for seed in (2, 0):
            tell(work(items[seed]))
        raise KeyboardInterrupt

    monkeypatch.setattr("tacit.recipes.many_models.in_processes", some_of_them)
    ticks = mock.Mock(perf_counter=itertools.count().__next__)
    monkeypatch.setattr("tacit.recipes.many_models.time", ticks)  # 0 at first, and one more for each model
    conditions = Conditions(seeds=3, jobs=2)
    with pytest.raises(SeedsInterrupted, match=r"^interrupted after 2 of 3 seeds$") as stopped:
        run_recipe(find_subject("digits"), {"steps": "2"}, conditions, quiet)
    result = stopped.value.found
    assert (result["seeds"], result["seeds_asked"], len(result["accuracies"])) == (2, 3, 2)
    assert [point["seed"] for point in result["history"] if point["step"] == 2] == [0, 2]
    assert result["seconds"] == 2
    with pytest.raises(KeyboardInterrupt) as stopped:  # some rows of a sweep are none
        run_sweep(find_subject("digits"), read_axes(["steps=2,3"]), {}, conditions, quiet)
    assert not isinstance(stopped.value, SeedsInterrupted)


def test_what_processes_would_each_make_is_made_once_before(monkeypatch):
    made, begun = [], []

    def begin(work, items, jobs, tell):
        begun.append(list(made))
        raise KeyboardInterrupt

    monkeypatch.setattr("tacit.recipes.many_models.in_processes", begin)
    monkeypatch.setattr(Configuration, "make_start", lambda self, device, progress: made.append("start"))
    monkeypatch.setattr(Configuration, "load", lambda self, device, progress: made.append("features"))
    recipe = RECIPES["scatter-linear-mnist"]
    monkeypatch.setattr("tacit.recipes.many_models.load", lambda name: load("digits"))
    with pytest.raises(KeyboardInterrupt):
        run_recipe(recipe, {"batch_size": "256"}, Conditions(seeds=2, jobs=2), quiet)
    assert begun == [["start", "features"]]


def test_every_recipe_of_the_catalogue_can_be_sent():
    for recipe in [*RECIPES.values(), find_subject("digits")]:
        assert len(pickle.dumps(recipe)) < 10_000
