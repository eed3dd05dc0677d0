"""What the results page says beside its figures: notes on published ones, what was not measured, and on what it ran."""

import pytest

from tacit.recipes import find_recipe, published_figures
from tacit.reporting.results_notes import Notes, not_measured
from tacit.reporting.results_tables import results_table

ROW = {
    "name": "some-recipe",
    "method": "some method",
    "settings": {},
    "knobs": {"setting": "published"},
    "published": 0.95,
    "published_epsilon": 2.0,
    "measured": 0.9613,
    "std": None,
    "epsilon": 1.554,
    "epsilon_by_accountant": {},
    "noise_multiplier": 4.0,
    "steps": 1000,
    "measured_on": "test set",
    "seeds": 1,
    "seconds_a_seed": 61.0,
    "hardware": {"threads": 1, "cores": 2},
    "command": "tacit recipe run some-recipe",
    "date": "2026-01-01T00:00:00+00:00",
    "file": "some-recipe.json",
}


def figure(epsilon=2.0, accuracy=0.95, note="other images", recipe="some-recipe", method="some method"):
    about = {"accountant": "moments", "note": note}
    return {"recipe": recipe, "method": method, "epsilon": epsilon, "accuracy": accuracy, **about}


def test_a_note_is_numbered_in_the_table_and_listed():
    notes = Notes.of([figure(), figure(4.0, 0.97), figure(8.0, 0.98, note="")])
    assert "| 95 at 2 [1] |" in results_table([ROW], notes)
    assert notes.listed().splitlines()[2:] == [
        "1. **some method** at epsilon 2, 4: other images; accounted by moments.",
        "2. **some method** at epsilon 8: accounted by moments.",
    ]


def test_recipes_of_one_method_have_notes_of_their_own_in_the_order_of_their_files():
    notes = Notes.of([figure(), figure(recipe="another-recipe", note="fixed lots")])
    assert [notes.number(figure()), notes.number(figure(recipe="another-recipe"))] == [2, 1]
    assert notes.mark(ROW) == " [2]"


@pytest.mark.parametrize("published", [[], [{**figure(note=""), "accountant": ""}], [figure(accuracy=0.94)]])
def test_a_file_whose_figure_has_no_note_is_shown_without(published):
    assert "| 95 at 2 |" in results_table([ROW], Notes.of(published))


def test_notes_of_the_recipes_reach_the_page():
    row = {**ROW, "name": "abadi2016-cifar10", "published": 0.67}
    notes = Notes.of([one for one in published_figures() if one["dataset"] == "cifar10-jpeg"])
    number = int(notes.mark(row).strip(" []"))
    assert "convolutions from CIFAR-100, which rows here do without" in notes.texts[number - 1]
    assert all("on the original images" in text for text in notes.texts)


def test_why_a_published_setting_was_not_measured_is_said_until_it_is():
    own = {**ROW, "name": "scale-cifar10", "knobs": {"setting": "own"}}
    assert "`scale-cifar10` was measured with our own" in not_measured([ROW, own])
    assert not not_measured([own, {**own, "knobs": {"setting": "published"}}])
    assert not not_measured([ROW])


@pytest.mark.parametrize(("name", "epsilon"), [("scale-cifar10", "8"), ("noise-prior-cifar10", "1")])
def test_what_would_measure_it_is_what_the_recipe_has(name, epsilon):
    said = not_measured([{**ROW, "name": name, "knobs": {"setting": "own"}}])
    assert f"{name} --set setting=published --set epsilon={epsilon}`" in said
    published, own = (
        find_recipe(name).configured({"setting": setting, "epsilon": epsilon}) for setting in ("published", "own")
    )
    assert "more steps than ours" in said
    assert published.steps > own.steps


@pytest.mark.parametrize(
    ("hardware", "said"),
    [
        ({"threads": 1, "cores": 2}, "1 thread of 2 CPU cores"),
        ({"threads": 2, "cores": 16}, "2 threads of 16 CPU cores"),
        ({"threads": 2}, "2 CPU threads"),
        ({"gpu": "a GPU", "threads": 4, "cores": 16}, "a GPU"),
    ],
)
def test_threads_are_no_cores(hardware, said):
    assert f"| {said}, 2026-01-01" in results_table([{**ROW, "hardware": hardware}], Notes.of([]))


@pytest.mark.parametrize(
    ("jobs", "seeds", "said"),
    [
        (1, 5, "a GPU"),
        (3, 1, "a GPU"),
        (3, 5, "a GPU, 3 models at a time (25 s for each of 5)"),
        (9, 5, "a GPU, 5 models at a time (25 s for each of 5)"),
    ],
)
def test_models_that_shared_a_machine_and_what_each_took_of_it(jobs, seeds, said):
    row = {**ROW, "hardware": {"gpu": "a GPU"}, "jobs": jobs, "seeds": seeds, "seconds": 124.0}
    assert f"| {said}, 2026-01-01" in results_table([row], Notes.of([]))
