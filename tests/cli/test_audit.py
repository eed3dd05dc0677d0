"""``tacit train --canaries`` and ``tacit audit`` through the entry point."""

import dataclasses
import json
import shutil
import stat
from unittest import mock

import pytest
import torch
from command_line import refusal, run_tacit

from tacit.auditing.canaries import Planting, read_planting
from tacit.auditing.run_folders import read_released
from tacit.datasets import load, load_table
from tacit.datasets.tables.origin import TableOrigin
from tacit.models import build
from tacit.pate.settings import pate_settings
from tacit.pate.students import Perceptron, RunningTargets, StudentEnsemble, Supervised
from tacit.training import RunFolder

TRAIN = ("train", "digits", "--model", "linear", "--steps", "15", "--batch-size", "256")
REFERENCED = ("calibrated-loss", "lira-offline-fixed", "lira-offline")
QUICK = ("--model", "linear", "--steps", "3", "--canaries", "30", "--shadows", "4", "--plain-epochs", "1")


def told(*arguments, **options):
    done = run_tacit(*arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip().splitlines()) == 1
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted") / "run"
    return folder, told(*TRAIN, "--epsilon", "3", "--canaries", "200", "--out", str(folder))


def test_planting_changes_neither_the_plan_nor_its_cost(planted, tmp_path):
    folder, trained = planted
    plain = told(*TRAIN, "--epsilon", "3", "--out", str(tmp_path / "run"))
    for key in ("epsilon", "delta", "noise_multiplier", "steps", "statement"):
        assert trained[key] == plain[key]
    record = json.loads((folder / "run.json").read_text())
    assert record["plan"]["canaries"] == {"kind": "adversarial", "count": 200}
    assert record["plan"]["examples"] == len(load("digits").train)
    other = json.loads((tmp_path / "run" / "run.json").read_text())
    assert "canaries" not in other["plan"]
    assert not (tmp_path / "run" / Planting.FILE_NAME).exists()


def test_which_canaries_were_there_is_for_the_owner_alone(planted):
    folder, _ = planted
    path = folder / Planting.FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    planting = read_planting(folder)
    assert len(planting) == 200
    public = [path.read_text() for path in (folder / "run.json", folder / "history.jsonl", folder / "report.html")]
    assert all("included" not in text for text in public)
    assert "adversarial, count 200" in public[2]


def test_a_run_is_audited(planted):
    folder, trained = planted
    found = told("audit", str(folder), "--shadows", "8")
    assert found["epsilon_claimed"] == pytest.approx(trained["epsilon"])
    assert 0 <= found["epsilon_lower"] <= found["epsilon_largest"]
    assert found["confidence"] == 0.95
    assert found["canaries"] == {"kind": "adversarial", "count": 200, "coins": 200}
    assert 0.3 < found["auc"] < 0.7
    assert (found["shadows"], found["shadow_model"]) == (8, "linear")
    assert [attack["name"] for attack in found["attacks"]] == [*REFERENCED, "loss"]
    assert found["auc"] == found["attacks"][0]["auc"]["value"]
    assert not any("ceiling" in point for attack in found["attacks"] for point in attack["tpr_at_fpr"])
    assert set(found["tpr_at_fpr"]) == {"0.01", "0.001", "0.0001"}
    assert "epsilon_lower" not in found["private"]
    assert {"auc", "tpr_at_fpr"} <= set(found["private"])
    assert found["page"] == str(folder / "private-audit.html")
    for name in ("private-audit.html", "private-audit.json"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert json.loads((folder / "private-audit.json").read_text())["epsilon_lower"] == found["epsilon_lower"]


def test_a_run_that_leaks_more_than_it_says_is_refuted(planted, tmp_path):
    """Its model is replaced by one without noise, trained to the end on what was planted."""
    folder, _ = planted
    leaky = RunFolder(tmp_path)
    (tmp_path / Planting.FILE_NAME).write_bytes((folder / Planting.FILE_NAME).read_bytes())
    record = json.loads((folder / "run.json").read_text())
    record["statement"]["epsilon"] = 0.25
    (tmp_path / "run.json").write_text(json.dumps({**record, "model": "mlp"}))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 10))
    split = read_planting(folder).plant(load("digits")).train
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(split.inputs), split.targets).backward()
        optimizer.step()
    leaky.save_model(model)
    prose = run_tacit("audit", str(tmp_path), "--shadows", "0").stdout
    for part in ("claimed epsilon", "audited epsilon", "could have shown", "refuted", "for the owner of the data"):
        assert part in prose
    assert "accused in at most 5 of 100 audits" in " ".join(prose.split())
    found = json.loads((tmp_path / "private-audit.json").read_text())
    assert found["refuted"]
    assert found["epsilon_lower"] > 0.25


def test_a_run_without_noise_has_no_claim(tmp_path):
    folder = str(tmp_path / "run")
    told(*TRAIN, "--noise-multiplier", "0", "--unsafe-no-noise", "--canaries", "100", "--out", folder)
    elsewhere = ("--out", str(tmp_path / "elsewhere"))
    found = told("audit", folder, "--confidence", "0.5", "--shadows", "0", *elsewhere)
    assert found["epsilon_claimed"] is None
    assert not found["refuted"]
    assert found["confidence"] == 0.5
    assert found["page"] == str(tmp_path / "elsewhere" / "private-audit.html")


def people(table, target):
    return str(table / "people.csv"), "--target", target, "--schema", str(table / "people.toml")


@pytest.mark.parametrize("target", ["employed", "age"])
def test_a_table_is_audited_by_its_canaries_and_its_rows(table, target):
    run = str(table / "run")
    told("train", *people(table, target), "--steps", "5", "--canaries", "40", "--canary-kind", "blank", "--out", run)
    assert stat.S_IMODE((table / "run" / TableOrigin.FILE_NAME).stat().st_mode) == 0o600
    found = told("audit", run, "--shadows", "4")
    assert [attack["name"] for attack in found["attacks"]] == [*REFERENCED, "loss"]
    assert found["attacks"][0]["members"] == 160 - 40
    assert found["attacks"][0]["non_members"] == 40 + 40
    assert 0 < found["auc"] < 1
    assert found["canaries"]["kind"] == "blank"
    assert found["epsilon_lower"] <= found["epsilon_claimed"]
    assert {"auc", "attacks"} <= set(found["private"])
    assert "epsilon_lower" not in found["private"]
    prose = run_tacit("audit", run, "--shadows", "0").stdout
    assert "no budget paid for" in prose
    assert "is a table" in refusal("audit", str(table / "people.csv"))
    (table / "people.csv").unlink()
    prose = run_tacit("audit", run).stdout
    assert "Records were not at hand" in prose
    assert "The bound may be published" in prose
    assert "no budget paid for" not in prose
    assert told("audit", run)["auc"] is None
    assert "shadows=8: the records of the run are not at hand" in refusal("audit", run, "--shadows", "8")


def test_rows_of_a_table_that_are_learned_by_heart_are_found_out(table):
    """Labels by the toss of a coin can only be known by heart; the model is put in the place of the run's."""
    stream, names = torch.Generator().manual_seed(0), [f"n{number}" for number in range(12)]
    labels = (torch.rand(300, generator=stream) < 0.5).int().tolist()
    numbers = torch.rand(300, len(names), generator=stream).tolist()
    lines = [",".join([*map(str, row), str(label)]) for row, label in zip(numbers, labels, strict=True)]
    (table / "people.csv").write_text("\n".join([",".join([*names, "employed"]), *lines]) + "\n", encoding="utf-8")
    columns = [f'[columns.{name}]\ntype = "number"\nlower = 0\nupper = 1\n' for name in names]
    (table / "people.toml").write_text("\n".join([*columns, '[columns.employed]\ntype = "boolean"\n']))
    told("train", *people(table, "employed"), "--steps", "2", "--model", "mlp", "--out", str(table / "run"))
    torch.manual_seed(0)
    split = load_table(table / "people.csv", "employed", table / "people.toml").train
    model = build("mlp", split.inputs.shape[1:], 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(500):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(split.inputs), split.targets).backward()
        optimizer.step()
    RunFolder(table / "run").save_model(model)
    found = told("audit", str(table / "run"), "--unsafe-seed", "1")
    assert found["auc"] > 0.65  # half of the rest are right by chance, which leaves 0.75
    assert found["epsilon_lower"] == found["epsilon_largest"] == 0
    assert found["canaries"] is None
    assert not found["refuted"]
    assert told("audit", str(table / "run"), "--unsafe-seed", "1")["attacks"] == found["attacks"]


def test_the_table_of_a_run_may_have_moved_but_not_changed(table):
    run = str(table / "run")
    told("train", *people(table, "employed"), "--steps", "2", "--out", run)
    moved = table / "moved.csv"
    shutil.move(table / "people.csv", moved)
    line = refusal("audit", run)
    assert "people.csv" in line
    assert "--table" in line
    assert told("audit", run, "--table", str(moved), "--shadows", "0")["attacks"][0]["members"] == 160
    moved.write_text(moved.read_text(encoding="utf-8") + "20,Bonn,1\n", encoding="utf-8")
    assert "is not the file that the run read" in refusal("audit", run, "--table", str(moved))


@pytest.mark.parametrize(
    ("target", "options"), [("employed", ()), ("age", ("--method", "functional", "--delta", "0", "--features", "city"))]
)
def test_a_linear_fit_is_attacked(table, target, options):
    folder = table / "fit"
    fit = told("linear", *people(table, target), *options, "--test-fraction", "0.3", "--out", str(folder))
    assert stat.S_IMODE((folder / TableOrigin.FILE_NAME).stat().st_mode) == 0o600
    found = told("audit", str(folder), "--shadows", "4")
    assert found["epsilon_claimed"] == fit["epsilon"] == 1.0
    assert found["delta"] == fit["delta"]
    assert [attack["name"] for attack in found["attacks"]] == [*REFERENCED, "loss"]
    rows = load_table(table / "people.csv", target, table / "people.toml", test_fraction=0.3)
    assert found["attacks"][0]["members"] == len(rows.train)
    assert found["attacks"][0]["non_members"] == len(rows.test)
    assert (found["model"], found["dataset"], found["canaries"]) == ("linear", "people.csv", None)
    assert found["statement"] == fit["statement"]
    assert "epsilon was not bounded" in run_tacit("audit", str(folder), "--shadows", "0").stdout


def test_a_linear_fit_is_attacked_by_the_scores_that_it_released(table):
    """The layer that is read back says what the published coefficients say, row by row."""
    folder = table / "fit"
    release = told("linear", *people(table, "employed"), "--out", str(folder))["release"]
    run = read_released(folder)
    inputs = run.records.pool.inputs
    expected = inputs.double().numpy() @ release["slopes"] + release["intercept"]
    assert run.model(inputs).detach().numpy() == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_a_linear_fit_whose_rows_are_not_known_is_refused(table):
    for dealt in ((), ("--split-seed", "1")):  # the second in the place of the first
        told("linear", *people(table, "employed"), *dealt, "--out", str(table / "shuffled"))
    line = refusal("audit", str(table / "shuffled"))
    assert "does not say where its rows came from" in line
    assert "--split-seed" in line
    told("linear", *people(table, "employed"), "--out", str(table / "fit"))
    path = table / "fit" / "model.json"
    release = json.loads(path.read_text())
    for changes, said in (
        ({"slopes": [1.0]}, "holds no linear fit of its table"),
        ({"features": ["age"]}, "its features are not those of"),
        ({"statement": None}, "has no statement"),
    ):
        path.write_text(json.dumps({**release, **changes}))
        assert said in refusal("audit", str(table / "fit"))


def test_a_run_of_pate_is_attacked(tmp_path):
    folder = str(tmp_path / "pate")
    ways = ("--teachers", "20", "--queries", "20", "--student", "supervised", "--public", "last")
    with mock.patch("tacit.pate.settings.Supervised", return_value=Supervised(steps=30)):
        run = told("pate", "digits", *ways, "--out", folder)
    found = told("audit", folder, "--shadows", "4")
    assert found["epsilon_claimed"] == pytest.approx(run["epsilon_data_independent"])
    assert found["attacks"][0]["members"] == len(load("digits").train)
    public = json.loads((tmp_path / "pate" / "run.json").read_text())["plan"]["public_inputs"]
    assert found["attacks"][0]["non_members"] == len(load("digits").test) - public
    assert (found["model"], found["dataset"], found["canaries"]) == ("mlp", "digits", None)
    assert "table='x.csv'" in refusal("audit", folder, "--table", "x.csv")


def quick_ensemble(data, choices):
    """The run that was chosen, with an ensemble that learns for a moment."""
    ensemble = StudentEnsemble(
        2, 1, RunningTargets(steps=3, batch_size=16), Perceptron(hidden=16, steps=3, batch_size=16, views=0)
    )
    return dataclasses.replace(pate_settings(data, choices), student=Supervised(steps=3), ensemble=ensemble)


def test_an_ensemble_of_pate_is_attacked(tmp_path):
    folder = tmp_path / "pate"
    with mock.patch("tacit.pate.settings.pate_settings", quick_ensemble):
        run = told(
            "pate", "digits", "--teachers", "20", "--queries", "20", "--student", "ensemble", "--out", str(folder)
        )
    found = told("audit", str(folder), "--shadows", "0")
    assert (found["model"], found["epsilon_claimed"]) == ("mlp", pytest.approx(run["epsilon_data_independent"]))
    digits, record = load("digits"), json.loads((folder / "run.json").read_text())
    public = record["plan"]["public_inputs"]
    assert found["attacks"][0]["members"] == len(digits.train)
    assert found["attacks"][0]["non_members"] == len(digits.test) - public
    right = read_released(folder).model(digits.test.inputs[public:]).argmax(1) == digits.test.targets[public:]
    assert right.float().mean().item() == pytest.approx(run["student_accuracy"])  # the very module that was tested
    del record["plan"]["features"]
    (folder / "run.json").write_text(json.dumps(record))
    assert "does not say what the ensemble's perceptrons look through" in refusal("audit", str(folder))


def test_a_run_without_canaries_is_attacked_and_bounds_nothing(tmp_path):
    told(*TRAIN, "--out", str(tmp_path / "run"))
    found = told("audit", str(tmp_path / "run"), "--shadows", "0")
    assert found["canaries"] is None
    assert found["epsilon_lower"] == 0
    assert [attack["name"] for attack in found["attacks"]] == ["loss"]
    prose = run_tacit("audit", str(tmp_path / "run"), "--shadows", "4").stdout
    assert "No canaries were planted" in prose
    assert "lira-offline-fixed" in prose


def test_a_run_that_goes_on_keeps_its_canaries(tmp_path):
    ways = ("--checkpoint", str(tmp_path / "saved"), "--out", str(tmp_path / "run"))
    first = told(*TRAIN, "--canaries", "40", *ways)
    before = (tmp_path / "run" / Planting.FILE_NAME).read_bytes()
    again = told(*TRAIN, *ways, "--resume")
    assert again["epsilon"] == first["epsilon"]
    assert (tmp_path / "run" / Planting.FILE_NAME).read_bytes() == before
    line = refusal(*TRAIN, *ways, "--resume", "--canaries", "50")
    assert "canaries=50" in line
    assert "40" in line
    nowhere = refusal(*TRAIN, "--canaries", "40", "--checkpoint", str(tmp_path / "saved"), "--resume", cwd=tmp_path)
    assert "canaries=40: a run that goes on has its own, in its folder. Name that with --out" in nowhere
    assert not (tmp_path / "runs").exists()


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Finished runs, each in a folder with its checkpoint beside it: two with canaries of one kind and number."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name, planted in (("one", ("--canaries", "40")), ("two", ("--canaries", "40")), ("none", ())):
        told(*TRAIN, *planted, "--checkpoint", str(folder / f"saved-{name}"), "--out", str(folder / name))
    return folder


@pytest.mark.parametrize(("saved", "run"), [("one", "new"), ("one", "two"), ("one", "none"), ("none", "one")])
def test_a_finished_run_is_not_taken_for_one_with_other_canaries(checkpoints, tmp_path, saved, run):
    """Its record would tell of coins that the model was not trained by, or of none."""
    folder = shutil.copytree(checkpoints, tmp_path / "copy")
    before = {path: path.read_bytes() for path in folder.glob("*/*.*")}
    line = refusal(*TRAIN, "--checkpoint", str(folder / f"saved-{saved}"), "--resume", "--out", str(folder / run))
    assert "it is of another run, since canaries changed" in line
    assert "What --canaries planted is kept in the run's folder: name that with --out." in line
    assert not (folder / "new").exists()
    assert {path: path.read_bytes() for path in folder.glob("*/*.*")} == before
    told(*TRAIN, "--checkpoint", str(folder / f"saved-{saved}"), "--resume", "--out", str(folder / saved))


@pytest.mark.parametrize("key_is_gone", [False, True])
def test_an_interrupted_run_does_not_go_on_without_its_canaries(tmp_path, monkeypatch, key_is_gone):
    """Without its key the records cannot be told by their fingerprint, and a redrawn run would train on others."""
    book, saved = str(tmp_path / "budget.sqlite"), tmp_path / "saved"
    made = run_tacit("ledger", "create", book, "--dataset", "digits", "--epsilon", "20", "--delta", "1e-5")
    assert made.returncode == 0, made.stderr
    ways = (*TRAIN, "--ledger", book, "--checkpoint", str(saved))
    with monkeypatch.context() as patch:
        patch.setattr("tacit.training.experiment.evaluate", mock.Mock(side_effect=KeyboardInterrupt))
        stopped = run_tacit(*ways, "--canaries", "40", "--out", str(tmp_path / "run"))
    assert stopped.returncode == 130, stopped.stderr
    if key_is_gone:
        (saved / "0" / "key").unlink()
    line = refusal(*ways, "--resume", "--redraw", "--out", str(tmp_path / "other"))
    assert f"since canaries{'' if key_is_gone else ', data'} changed" in line
    assert not (tmp_path / "other").exists()
    told(*ways, "--resume", "--redraw", "--out", str(tmp_path / "run"))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["plan"]["canaries"]["count"] == 40


def test_a_run_on_a_table_that_goes_on_keeps_where_its_rows_came_from(table):
    """Another table would make others members. A finished run reads no row again, and so does not notice."""
    rows = (table / "people.csv").read_text(encoding="utf-8")
    (table / "other.csv").write_text(rows.replace("Bonn", "Köln", 1), encoding="utf-8")
    ways = (*people(table, "employed")[1:], "--steps", "3", "--checkpoint", str(table / "saved"))
    told("train", str(table / "people.csv"), *ways, "--out", str(table / "run"))
    before = (table / "run" / TableOrigin.FILE_NAME).read_bytes()
    run_tacit("train", str(table / "other.csv"), *ways, "--out", str(table / "run"), "--resume")
    assert (table / "run" / TableOrigin.FILE_NAME).read_bytes() == before


def test_a_training_that_is_refused_leaves_no_private_file_behind(table):
    ways = (*people(table, "employed"), "--checkpoint", str(table / "saved"))
    told("train", *ways, "--steps", "3", "--out", str(table / "run"))
    line = refusal("train", *ways, "--steps", "4", "--resume", "--out", str(table / "other"))
    assert "it is of another run, since plan changed" in line
    assert not (table / "other").exists()


def test_a_refused_budget_leaves_no_canaries_behind(tmp_path):
    book = str(tmp_path / "budget.sqlite")
    made = run_tacit("ledger", "create", book, "--dataset", "digits", "--epsilon", "1", "--delta", "1e-5")
    assert made.returncode == 0, made.stderr
    out = tmp_path / "run"
    line = refusal(*TRAIN, "--epsilon", "3", "--canaries", "40", "--ledger", book, "--out", str(out), status=3)
    assert "budget" in line
    assert not out.exists()


def test_a_data_set_is_audited_with_plain_and_private_models(tmp_path):
    found = told("audit", "digits", "--epsilon", "2", *QUICK, "--out", str(tmp_path / "audit"))
    assert found["epsilon_claimed"] == 2
    assert found["confidence"] == 0.95
    assert found["canaries"] == {"kind": "adversarial", "count": 30, "coins": 150}
    assert found["plain"]["epsilon_claimed"] is None
    assert set(found["tpr_at_fpr"]) == set(found["plain"]["tpr_at_fpr"]) == {"0.01", "0.001", "0.0001"}
    assert len(found["attacks"]) == len(found["plain"]["attacks"]) == 6
    assert 1.5 < found["white_box"]["epsilon"] < 2.3
    refuted = [found["white_box"]["epsilon"] > 2, found["epsilon_lower"] > 2]
    assert found["white_box"]["refuted"] == refuted[0]
    assert found["refuted"] == any(refuted)
    bounds = [found["white_box"], *found["bounds"]]
    assert [bound["confidence"] for bound in bounds] == pytest.approx([0.975] * 3)
    assert {"epsilon_lower", "auc", "plain"} <= set(found["private"])
    assert {path.name for path in (tmp_path / "audit").iterdir()} == {"private-audit.html", "private-audit.json"}
    assert found["page"] == str(tmp_path / "audit" / "private-audit.html")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("audit", "no-such-thing"), ("no-such-thing", "neither a run's folder nor one of", "digits")),
        (("audit", "digits", "--epsilon", "inf"), ("epsilon=inf", "finite")),
        (("audit", "digits", "--epsilon", "0"), ("epsilon=0", "above 0")),
        (("audit", "digits", "--delta", "1"), ("delta=1", "strictly between")),
        (("audit", "digits", "--canaries", "3"), ("canaries=3", "at least 10")),
        (("audit", "digits", "--canaries", "1000"), ("canaries=1000", "half of the 1438")),
        (("audit", "digits", "--canary-kind", "yellow"), ("canary_kind='yellow'", "mislabelled")),
        (("audit", "digits", "--shadows", "1"), ("shadows=1", "at least 4")),
        (("audit", "digits", "--table", "x.csv"), ("table='x.csv'", "Leave it out")),
        (("audit", "digits", "--confidence", "95"), ("confidence=95", "0.95")),
        (("audit", "digits", "--model", "llm"), ("model='llm'",)),
        (("audit", "digits", "--device", "cuda"), ("cuda", "--device cpu")),
        (("audit",), ("RUN_OR_DATASET",)),
        ((*TRAIN, "--canaries", "9"), ("canaries=9", "at least 10")),
        ((*TRAIN, "--canaries", "720"), ("canaries=720", "half of the 1438")),
        ((*TRAIN, "--canaries", "20", "--canary-kind", "yellow"), ("canary_kind='yellow'", "blank")),
        ((*TRAIN, "--canary-kind", "blank"), ("canary_kind='blank'", "--canaries")),
        ((*TRAIN, "--canaries", "20", "--sampler", "fixed-size"), ("replace-one", "poisson")),
        ((*TRAIN, "--canaries", "20", "--sampler", "shuffled"), ("zero-out", "poisson")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_refusals_name_argument_value_and_remedy(arguments, parts, tmp_path):
    line = refusal(*arguments, cwd=tmp_path)
    for part in parts:
        assert part in line, line
    assert not list(tmp_path.iterdir())


def test_the_folder_to_write_to_is_looked_at_before_the_model_is(planted, tmp_path):
    """Coins that fell alike are noticed by the audit itself; a folder that cannot be written must come first."""
    folder, _ = planted
    copy = shutil.copytree(folder, tmp_path / "run")
    planting = read_planting(folder)
    alike = dataclasses.replace(planting, included=torch.ones_like(planting.included))
    (copy / Planting.FILE_NAME).write_bytes(alike.to_bytes())
    for out in ((), ("--out", str(tmp_path / "audit"))):
        assert "canaries=200: all of them were trained on" in refusal("audit", str(copy), *out)
    assert not (tmp_path / "audit").exists()  # nothing was written to it
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refusal("audit", str(copy), "--out", str(tmp_path / "file" / "audit"))


def test_folders_that_cannot_be_audited_are_refused(planted, tmp_path):
    folder, _ = planted
    for content in (None, json.dumps({"schema": 1, "kind": "noise prior"})):  # nothing, and what another command left
        if content:
            (tmp_path / "run.json").write_text(content)
        line = refusal("audit", str(tmp_path), "--out", str(tmp_path / "audit"))
        assert "holds no run that can be attacked" in line
        assert "reads the folders of tacit train, tacit pate and tacit linear --out" in line
    (tmp_path / "run.json").write_text("{")
    assert "run.json: cannot be read" in refusal("audit", str(tmp_path))
    (tmp_path / "run.json").write_bytes((folder / "run.json").read_bytes())
    line = refusal("audit", str(tmp_path))
    assert f"{Planting.FILE_NAME} is missing" in line
    (tmp_path / Planting.FILE_NAME).write_bytes((folder / Planting.FILE_NAME).read_bytes())
    assert "model.safetensors" in refusal("audit", str(tmp_path))
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refusal("audit", str(folder), "--out", str(tmp_path / "file" / "audit"))
    for option, value, said in (
        ("--confidence", "95", "confidence=95"),
        ("--shadows", "3", "shadows=3: must be at least 4"),
        ("--shadows", "-1", "shadows=-1"),
        ("--table", "x.csv", "table='x.csv'"),
        ("--model", "llm", "model='llm'"),
        ("--epsilon", "2", "epsilon=2.0: "),
        ("--records", "50", "records=50"),
        ("--steps", "2", "Leave it out"),
    ):
        assert said in refusal("audit", str(folder), option, value, "--out", str(tmp_path / "audit"))
    assert not (tmp_path / "audit").exists()
