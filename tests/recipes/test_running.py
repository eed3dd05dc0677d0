"""Running recipes and sweeps: what is measured, on what, and what it says it cost."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from small_recipe import MODERATE, small_configuration, small_recipe
from torch import nn

from tacit.core.errors import BudgetExceededError, InputError
from tacit.core.plain import to_json
from tacit.core.privacy import Budget
from tacit.core.randomness import Randomness
from tacit.datasets import load
from tacit.ledger import Ledger
from tacit.recipes import Conditions, SeedsInterrupted, find_recipe, run_recipe
from tacit.recipes.conditions import FEATURES, TRAINING
from tacit.recipes.holding_out import hold_out
from tacit.recipes.measuring import Outcome, measure, train_model
from tacit.recipes.recipe import Configuration
from tacit.recipes.running import training_facts
from tacit.recipes.sweeping import find_subject, read_axes, run_sweep
from tacit.training import PrincipalComponents, fit
from tacit.training import preparation as preparation_room
from tacit.training.preparation import Centring


@dataclasses.dataclass(frozen=True)
class Knobs:
    epsilon: float = 3.0
    steps: int = 5
    pca_noise: float = 20.0


def configure(knobs):
    return small_configuration(
        steps=knobs.steps, epsilon=knobs.epsilon, preparations=(PrincipalComponents(30, knobs.pca_noise),)
    )


SMALL = small_recipe(Knobs(), configure, (MODERATE,))


def quiet(*_):
    pass


def test_result_has_what_the_interface_promises_and_is_json():
    result = run_recipe(SMALL, {}, Conditions(seeds=2), quiet)
    assert {"name", "published", "measured", "std", "epsilon", "seeds"} <= result.keys()
    assert {"hardware", "versions", "command", "date", "delta"} <= result.keys()
    assert result["published"] == 0.5
    assert result["seeds"] == 2
    assert result["measured"] == pytest.approx(np.mean(result["accuracies"]))
    assert result["std"] == pytest.approx(np.std(result["accuracies"], ddof=1))
    json.loads(to_json(result))


def test_every_model_has_noise_of_its_own(monkeypatch):
    """From the system, whatever the seed: noise that a seed gives is known to whoever knows the seed."""
    made = []

    class Noted(Randomness):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append((arguments, options, self))

    monkeypatch.setattr("tacit.recipes.measuring.Randomness", Noted)
    measure(configure(Knobs(steps=2)), Conditions(seeds=3), quiet)
    assert [(arguments, options) for arguments, options, _ in made] == [((), {})] * 3
    assert len({source.noise_key(0) for _, _, source in made}) == 3


@pytest.mark.parametrize(("seconds", "asked"), [(0.0, [None, None, None]), (1.5, [None, True, True])])
def test_seeds_after_one_whose_step_was_compiled_are_compiled_at_once(monkeypatch, seconds, asked):
    seen = []

    def noting(*arguments, execution, **options):
        seen.append(execution.compile)
        eager = dataclasses.replace(execution, compile=False)
        return dataclasses.replace(fit(*arguments, execution=eager, **options), compile_seconds=seconds)

    monkeypatch.setattr("tacit.recipes.measuring.fit", noting)
    measure(configure(Knobs(steps=2)), Conditions(seeds=3), quiet)
    assert seen == asked


def test_outcomes_are_joined_in_the_order_of_their_seeds():
    one = measure(configure(Knobs(steps=2)), Conditions(), quiet)
    second, first = (
        dataclasses.replace(
            one, accuracies=[share], seconds=[share], lasted=lasted, engine=f"of {seed}", history=points
        )
        for seed, share, lasted in ((1, 0.75, 2.0), (0, 0.5, 3.0))
        for points in [[{**point, "seed": seed} for point in one.history]]
    )
    joined = Outcome.joined([second, first])
    assert (joined.accuracies, joined.seconds, joined.lasted) == ([0.5, 0.75], [0.5, 0.75], 3.0)
    assert (joined.engine, joined.plan) == ("of 1", one.plan)  # a later seed finds what an earlier one compiled
    assert joined.history == [*first.history, *second.history]


class Clock:
    """Stands still unless a model is trained, for ten seconds."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def train(self, *arguments, **options):
        self.now += 10
        return train_model(*arguments, **options)


def test_ctrl_c_leaves_the_result_of_the_seeds_that_had_ended(monkeypatch, ctrl_c):
    clock = Clock()
    monkeypatch.setattr("tacit.recipes.measuring.time", clock)
    monkeypatch.setattr("tacit.recipes.measuring.train_model", clock.train)
    ctrl_c("tacit.recipes.measuring.evaluate", 2)  # of the third model, which took its ten seconds
    with pytest.raises(SeedsInterrupted, match=r"^interrupted after 2 of 4 seeds$") as stopped:
        run_recipe(SMALL, {}, Conditions(seeds=4, points=1), quiet)
    result = stopped.value.found
    assert (result["seconds"], result["seconds_a_seed"], clock.now) == (20, 10, 30)
    whole = run_recipe(SMALL, {}, Conditions(seeds=2), quiet)
    assert result.keys() == whole.keys()
    assert (result["seeds"], result["seeds_asked"], len(result["accuracies"])) == (2, 4, 2)
    assert (whole["seeds"], whole["seeds_asked"]) == (2, 2)
    assert result["measured"] == pytest.approx(np.mean(result["accuracies"]))
    assert {point["seed"] for point in result["history"]} == {0, 1}
    json.loads(to_json(result))


def test_ctrl_c_in_the_first_seed_leaves_nothing(ctrl_c):
    ctrl_c("tacit.recipes.measuring.train_model", 0)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_recipe(SMALL, {}, Conditions(seeds=4), quiet)
    assert not isinstance(stopped.value, SeedsInterrupted)


def test_ctrl_c_after_the_last_seed_leaves_the_whole_result(ctrl_c):
    ctrl_c("tacit.recipes.running.guarantee_facts", 0)
    with pytest.raises(SeedsInterrupted, match=r"^interrupted after 2 of 2 seeds$") as stopped:
        run_recipe(SMALL, {}, Conditions(seeds=2), quiet)
    result = stopped.value.found
    assert (result["name"], result["seeds"], result["seeds_asked"], len(result["accuracies"])) == ("small", 2, 2, 2)


def test_an_account_is_asked_for_all_seeds_before_features_are_made(tmp_path, monkeypatch):
    book = Ledger.create(tmp_path / "book.sqlite", dataset="digits", budget=Budget(3.3, 1e-5))
    conditions = Conditions(account=book.account("digits"))
    monkeypatch.setattr(Configuration, "load", None)
    with pytest.raises(BudgetExceededError):
        run_recipe(SMALL, {}, dataclasses.replace(conditions, seeds=2), quiet)
    monkeypatch.undo()
    run_recipe(SMALL, {}, conditions, quiet)  # which holds one
    with pytest.raises(InputError, match="held_out: its accuracies are figures on private examples"):
        dataclasses.replace(conditions, held_out=True)


def test_epsilon_is_that_of_the_plan_with_its_preparation():
    result = run_recipe(SMALL, {"epsilon": "1"}, Conditions(), quiet)
    assert result["settings"] == {"epsilon": "1"}
    assert "views" not in result["training"]
    assert result["published"] is None  # the paper has no figure for it
    assert 0.99 < result["epsilon"] <= 1.0
    assert "DP-PCA to 30 dimensions" in result["statement"]
    assert result["epsilon_by_accountant"]["pld"] == pytest.approx(result["epsilon"])


def test_features_are_computed_in_view_and_preparations_made_for_the_examples_there_are(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    moved, examples = [], len(load("digits").train)
    configuration = dataclasses.replace(
        configure(Knobs()),
        features=lambda shape: nn.Flatten() if shape == (1, 8, 8) else None,
        preparations=lambda examples: (Centring(examples, 10.0),),
    )
    outcome = measure(configuration, Conditions(held_out=True), lambda *done: moved.append(done))
    assert outcome.plan.preparations == (Centring(outcome.plan.examples, 10.0),)
    assert outcome.plan.examples < examples
    assert moved[0] == (0, 64, examples, 0.0, FEATURES)  # inputs made so far of all there are
    assert moved[-1] == (0, 5, 5, outcome.plan.epsilon(), TRAINING)


def test_what_augmentations_draw_is_secret_and_new_for_every_model():
    """One record more moves the draws of all after it: whoever knew the seed would see another lot.

    The nearest pitfalls are 19 and 20, of noise that a seed makes public.
    """
    states = []

    def augment(generator):
        states.append(generator.get_state())
        by_its_seed = torch.Generator().manual_seed(generator.initial_seed())
        assert not torch.equal(states[-1], by_its_seed.get_state())
        return lambda *batch: batch

    configuration = dataclasses.replace(configure(Knobs()), augment=augment)
    assert training_facts(configuration)["views"] == "by secret draws"
    for _ in range(2):
        measure(configuration, Conditions(seeds=2), quiet)
    assert len({bytes(state.tolist()) for state in states}) == 4


def test_every_seed_prepares_anew(monkeypatch):
    seen = []
    prepare = preparation_room.prepare

    def counted(plan, inputs, **options):
        transform = prepare(plan, inputs, **options)
        seen.append(transform[0].directions)
        return transform

    monkeypatch.setattr("tacit.recipes.measuring.prepare", counted)
    run_recipe(SMALL, {}, Conditions(seeds=2), quiet)
    assert len(seen) == 2
    assert not torch.equal(*seen)


def test_history_ends_with_the_result():
    outcome = measure(configure(Knobs()), Conditions(seeds=2), quiet)
    last = [point for point in outcome.history if point["step"] == 5]
    assert [point["accuracy"] for point in last] == outcome.accuracies
    assert [point["seed"] for point in last] == [0, 1]
    assert last[0]["epsilon"] == outcome.plan.epsilon()


def test_held_out_examples_are_neither_trained_on_nor_tested():
    digits = load("digits")
    held = hold_out(digits)
    rows = {row.numpy().tobytes() for row in held.train.inputs}
    known = {row.numpy().tobytes() for row in digits.train.inputs}
    others = [row.numpy().tobytes() for row in held.test.inputs]
    assert len(held.train) + len(held.test) == len(digits.train)
    assert all(row in known for row in others)
    assert not any(row in rows for row in others)
    assert torch.equal(hold_out(digits).test.inputs, held.test.inputs)  # the same rows every time
    result = run_recipe(SMALL, {}, Conditions(held_out=True), quiet)
    assert "held-out" in result["measured_on"]
    assert result["plan"]["examples"] == len(held.train)


def test_sweep_measures_every_combination():
    moved = []
    axes = read_axes(["steps=2,3", "epsilon=1,2"])
    result = run_sweep(SMALL, axes, {"pca_noise": "30"}, Conditions(), lambda *done: moved.append(done))
    assert [(row["steps"], row["epsilon"]) for row in result["rows"]] == [
        (2, pytest.approx(1, rel=0.01)),
        (2, pytest.approx(2, rel=0.01)),
        (3, pytest.approx(1, rel=0.01)),
        (3, pytest.approx(2, rel=0.01)),
    ]
    assert {model for model, *_ in moved} == {0, 1, 2, 3}
    assert result["epsilon_together"] > max(row["epsilon"] for row in result["rows"])


def test_an_account_is_asked_for_all_rows_of_a_sweep_before_the_first(tmp_path):
    book = Ledger.create(tmp_path / "book.sqlite", dataset="digits", budget=Budget(3.1, 1e-5))
    conditions = Conditions(account=book.account("digits"))
    for axis, seeds in (("epsilon=3,2.9", 1), ("epsilon=3", 2)):
        with pytest.raises(BudgetExceededError):
            run_sweep(SMALL, read_axes([axis]), {}, dataclasses.replace(conditions, seeds=seeds), quiet)
    assert not book.account("digits").entries()
    run_sweep(SMALL, read_axes(["epsilon=1,2"]), {}, conditions, quiet)
    assert 2 < book.account("digits").spent() <= 3


def test_smaller_lots_have_the_noise_of_the_full_run_on_their_mean():
    full = configure(Knobs())
    small = full.with_smaller_lots(8, 1438)
    plan, stands_in = full.plan(1438), small.plan(1438)
    assert stands_in.expected_batch_size == 12
    assert stands_in.steps == plan.steps
    noises = [each.noise_multiplier / each.expected_batch_size for each in (plan, stands_in)]
    assert noises[0] == pytest.approx(noises[1], rel=1e-12)
    assert stands_in.epsilon() > 2 * plan.epsilon()
    with pytest.raises(InputError, match="smaller_lots=101: must be at most the lot of 100"):
        full.with_smaller_lots(101, 1438)


def test_a_sweep_over_smaller_lots_says_what_it_stands_for():
    axes, held_out = read_axes(["steps=2,3"]), Conditions(held_out=True)
    result = run_sweep(SMALL, axes, {}, held_out, quiet, smaller_lots=10)
    assert result["smaller_lots"] == 10
    for row in result["rows"]:
        assert row["full_batch_size"] == 100
        assert row["full_epsilon"] == pytest.approx(3, rel=0.01)
        assert row["epsilon"] > 3
        assert row["full_noise_multiplier"] == pytest.approx(10 * row["noise_multiplier"])
    with pytest.raises(InputError, match=r"smaller_lots=2: is to choose by, .* Add --held-out"):
        run_sweep(SMALL, axes, {}, Conditions(), quiet, smaller_lots=2)
    with pytest.raises(InputError, match="smaller_lots=0"):
        run_sweep(SMALL, axes, {}, held_out, quiet, smaller_lots=0)


def test_results_and_sweeps_say_where_a_start_came_from():
    class Start:
        made = 0

        def make(self, device, report):
            self.made += 1

        def record(self):
            return {"weights_sha256": str(self.made)}

        def settings(self):
            return None

    start = Start()
    recipe = dataclasses.replace(SMALL, configure=lambda knobs: dataclasses.replace(configure(knobs), start=start))
    assert run_recipe(recipe, {}, Conditions(), quiet)["public_start"] == {"weights_sha256": "1"}
    swept = run_sweep(recipe, read_axes(["steps=2,3"]), {}, Conditions(), quiet)
    assert swept["public_start"] == {"weights_sha256": "3"}
    assert run_recipe(SMALL, {}, Conditions(), quiet)["public_start"] is None


def test_sweep_of_a_data_set_starts_from_its_defaults():
    result = run_sweep(find_subject("digits"), read_axes(["steps=2,4"]), {}, Conditions(), quiet)
    assert [row["steps"] for row in result["rows"]] == [2, 4]
    assert all("test_accuracy" in row for row in result["rows"])


def test_sweep_refuses_what_it_does_not_know_before_training():
    with pytest.raises(InputError, match="neither a named data set nor a recipe"):
        find_subject("nothing")
    with pytest.raises(InputError, match="is no knob"):
        run_sweep(SMALL, read_axes(["clap=1"]), {}, Conditions(), quiet)


def test_unknown_recipes_are_refused():
    with pytest.raises(InputError, match="tacit recipe list"):
        find_recipe("nothing")
