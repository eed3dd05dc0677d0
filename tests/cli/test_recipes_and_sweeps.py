"""``tacit recipe`` and ``tacit sweep`` through the entry point."""

import json

import pytest
from command_line import refusal, run_tacit

from tacit.recipes import find_subject, read_results, results_by_recipe
from tacit.training import execution


def run_json(*arguments, **options):
    done = run_tacit(*arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip().splitlines()) == 1
    return json.loads(done.stdout)


def test_list_shows_what_was_measured(tmp_path):
    facts = {"hardware": {}, "versions": {}, "command": "", "date": ""}
    for file, measured, epsilon in (("a", 0.9, 8.0), ("b", 0.8, 2.0), ("c", 0.99, None)):
        result = {"name": "abadi2016-mnist", "measured": measured, "std": 0.01, "epsilon": epsilon, "seeds": 5, **facts}
        (tmp_path / f"{file}.json").write_text(json.dumps(result))
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "none.json").write_text("none")
    recipes = {each["name"]: each for each in run_json("recipe", "list", "--results", str(tmp_path))["recipes"]}
    found = [
        (each["measured"], each["std"], each["epsilon"], each["seeds"], each["file"])
        for each in recipes["abadi2016-mnist"]["measured"]
    ]
    assert found == [(0.8, 0.01, 2.0, 5, "b.json"), (0.9, 0.01, 8.0, 5, "a.json"), (0.99, 0.01, None, 5, "c.json")]
    assert recipes["first-course-mnist"]["measured"] == []
    assert [each["earlier"] for each in recipes["abadi2016-mnist"]["measured"]] == [{}, {}, {}]
    listed = run_tacit("recipe", "list", "--results", str(tmp_path)).stdout
    assert "measured: 80 % at 2, 90 % at 8, 99 % without privacy" in listed


def test_list_says_what_was_measured_with_earlier_settings(tmp_path):
    facts = {"std": None, "seeds": 3, "hardware": {}, "versions": {}, "command": "", "date": ""}
    result = {"name": "noise-linear-cifar10", "measured": 0.7, "epsilon": 3.0, "steps": 200, **facts}
    (tmp_path / "a.json").write_text(json.dumps({**result, "settings": {}}))
    assert (
        "measured: 70 % at 3 (with earlier settings)" in run_tacit("recipe", "list", "--results", str(tmp_path)).stdout
    )


def test_list_names_recipes_and_their_figures():
    recipes = {recipe["name"]: recipe for recipe in run_json("recipe", "list")["recipes"]}
    figures = {figure["epsilon"]: figure["accuracy"] for figure in recipes["abadi2016-mnist"]["published"]}
    assert figures == {0.5: 0.90, 2.0: 0.95, 8.0: 0.97, None: 0.983}
    assert "epsilon" in recipes["abadi2016-mnist"]["knobs"]
    listed = run_tacit("recipe", "list").stdout
    assert all(word in listed for word in ("abadi2016-mnist", "90 % at 0.5", "98.3 % without privacy", "pca_noise"))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("recipe", "list", "--results", "nowhere"), ("results='nowhere'", "recipe run --out")),
        (("recipe", "run", "nothing"), ("nothing", "recipe list")),
        (("sweep", "digits", "--over", "clip=1,2,1"), ("--over clip=1,2,1", "--seeds")),
        (("recipe", "run", "abadi2016-mnist", "--set", "epsilon=3"), ("epsilon=3", "recalibrated")),
        (("recipe", "run", "abadi2016-mnist", "--set", "epsilno=3"), ("epsilno=3", "epsilon")),
        (("recipe", "run", "abadi2016-mnist", "--seeds", "0"), ("seeds=0",)),
        (("recipe", "run", "scatter-linear-mnist", "--set", "setting=best"), ("setting='best'", "own")),
        (("recipe", "run", "abadi2016-mnist", "--set", "hidden=0"), ("hidden=0", "at least 1")),
        (("recipe", "run", "scale-cifar10", "--set", "batch_size=0"), ("batch_size=0", "at least 1")),
        (
            ("recipe", "run", "tanh-filter-recurrent", "--set", "setting=plain", "--set", "batch_size=0"),
            ("batch_size=0", "at least 1"),
        ),
        (
            ("recipe", "run", "abadi2016-mnist", "--set", "noise=4", "--set", "noise_multiplier=8"),
            ("noise_multiplier=8", "noise=4", "once"),
        ),
        (("recipe", "page", "nowhere"), ("nowhere",)),
        (("sweep", "digits", "--over", "batch_size=64,5000"), ("batch_size=5000", "1438", "smaller")),
        (("sweep", "nothing", "--over", "clip=1"), ("nothing", "digits")),
        (("sweep", "digits", "--over", "clap=1"), ("clap=1", "clip")),
        (("sweep", "digits", "--over", "clip"), ("clip", "KEY=VALUE")),
        (("sweep", "digits"), ("--over",)),
        (("sweep", "digits", "--over", "clip=1", "--smaller-lots", "4"), ("smaller_lots=4", "--held-out")),
        (("sweep", "digits", "--over", "clip=1", "--smaller-lots", "4", "--private"), ("smaller_lots=4", "--private")),
    ],
)
def test_bad_input_is_one_line(arguments, parts, tmp_path):
    done = run_tacit(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    for part in parts:
        assert part in done.stderr
    assert not list(tmp_path.iterdir())


def test_sweep_gives_rows_and_a_figure(tmp_path):
    found = run_json("sweep", "digits", "--over", "clip=0.1,1", "--set", "steps=3", cwd=tmp_path)
    assert [row["clip"] for row in found["rows"]] == [0.1, 1.0]
    for row in found["rows"]:
        assert 0 <= row["test_accuracy"] <= 1
        assert row["epsilon"] <= 3
    assert (tmp_path / found["figures"][0]).read_text(encoding="utf-8").startswith("<svg")


def test_steps_are_compiled_where_the_rest_of_the_run_is_longer_than_that_takes(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(execution.CompileWatch, "_start", lambda watch, wait: compiled.append(wait))
    arguments = ("sweep", "digits", "--over", "clip=1", "--set", "steps=10", "--device", "cpu")
    for worth, expected in ((1e9, []), (0.0, [False])):
        monkeypatch.setitem(execution._WORTH_COMPILING, "cpu", worth)
        run_json(*arguments, cwd=tmp_path)
        assert compiled == expected


def test_sweep_in_prose_says_what_choosing_costs(tmp_path):
    done = run_tacit("sweep", "digits", "--over", "clip=0.1,1", "--set", "steps=3", "--held-out", cwd=tmp_path)
    assert done.returncode == 0
    assert "held_out_accuracy" in done.stdout
    assert "--held-out" in done.stderr


def test_a_sweep_on_held_out_examples_has_a_file_of_its_own(tmp_path):
    arguments = ("sweep", "digits", "--over", "clip=0.1", "--set", "steps=3")
    for more in ([], ["--held-out"]):
        run_json(*arguments, *more, cwd=tmp_path)
    names = {path.name for path in (tmp_path / "runs").glob("*.json")}
    assert names == {"digits-steps-3-sweep-clip.json", "digits-steps-3-held-out-sweep-clip.json"}


def untrained(*_, **__):
    pytest.fail("something was trained")


@pytest.mark.parametrize(
    "arguments", [("recipe", "run", "first-course-mnist"), ("sweep", "digits", "--over", "clip=0.1,1")]
)
def test_a_folder_that_cannot_be_written_is_refused_before_training(arguments, tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.recipes.run_recipe", untrained)
    monkeypatch.setattr("tacit.recipes.run_sweep", untrained)
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "results"
    line = refusal(*arguments, "--out", str(folder))
    assert f"out={str(folder)!r}: cannot be written (Not a directory). Choose another folder." in line
    assert "cannot be written" in refusal(*arguments, "--out", "/proc/nope")


def test_a_sweep_that_is_refused_leaves_no_folder(tmp_path):
    refusal("sweep", "digits", "--over", "clip=-1", "--out", "deep/results", cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_writes_the_seeds_that_had_ended_beside_the_whole_result_and_no_page_shows_them(
    tmp_path, monkeypatch, ctrl_c
):
    monkeypatch.setattr("tacit.recipes.find_recipe", find_subject)  # a data set that comes with tacit
    arguments = ("recipe", "run", "digits", "--set", "steps=3", "--seeds", "2", "--out", str(tmp_path), "--json")
    whole = tmp_path / "digits-steps-3.json"
    assert run_tacit(*arguments).returncode == 0
    before = whole.read_bytes()
    ctrl_c("tacit.recipes.measuring.train_model", 1)
    done = run_tacit(*arguments)
    assert done.returncode == 130, done.stderr
    assert done.stderr.strip().endswith("tacit: interrupted after 1 of 2 seeds; the result is of these")
    stopped = tmp_path / "digits-steps-3-1-of-2-seeds.json"
    assert sorted(tmp_path.iterdir()) == [stopped, whole]
    assert whole.read_bytes() == before
    for result in (json.loads(stopped.read_text()), json.loads(done.stdout)):
        assert (result["seeds"], result["seeds_asked"], len(result["accuracies"])) == (1, 2, 1)
    with pytest.warns(UserWarning, match=f"^{stopped.name}: was interrupted after 1 of 2 seeds, and is left out"):
        measured, _ = read_results(tmp_path)
    assert [result["file"] for result in measured] == [whole.name]
    assert results_by_recipe(tmp_path, required=True) == {"digits": measured}


def test_ctrl_c_with_nothing_to_keep_is_one_line(tmp_path, monkeypatch, ctrl_c):
    ctrl_c("tacit.recipes.measuring.train_model", 0)
    monkeypatch.setattr("tacit.recipes.find_recipe", find_subject)
    assert refusal("recipe", "run", "digits", "--out", str(tmp_path), status=130) == "tacit: interrupted"
    assert not list(tmp_path.iterdir())
