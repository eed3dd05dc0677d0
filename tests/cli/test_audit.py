"""``tacit train --canaries`` and ``tacit audit`` through the entry point."""

import dataclasses
import json
import shutil
import stat

import pytest
import torch
from command_line import refusal, run_tacit

from tacit.auditing.canaries import Planting, read_planting
from tacit.datasets import load
from tacit.training import RunFolder

TRAIN = ("train", "digits", "--model", "linear", "--steps", "15", "--batch-size", "256")
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
    found = told("audit", str(folder))
    assert found["epsilon_claimed"] == pytest.approx(trained["epsilon"])
    assert 0 <= found["epsilon_lower"] <= found["epsilon_largest"]
    assert found["confidence"] == 0.95
    assert found["canaries"] == {"kind": "adversarial", "count": 200, "coins": 200}
    assert 0.3 < found["auc"] < 0.7
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
    prose = run_tacit("audit", str(tmp_path)).stdout
    for part in ("claimed epsilon", "audited epsilon", "could have shown", "refuted", "for the owner of the data"):
        assert part in prose
    found = json.loads((tmp_path / "private-audit.json").read_text())
    assert found["refuted"]
    assert found["epsilon_lower"] > 0.25


def test_a_run_without_noise_has_no_claim(tmp_path):
    folder = str(tmp_path / "run")
    told(*TRAIN, "--noise-multiplier", "0", "--unsafe-no-noise", "--canaries", "100", "--out", folder)
    found = told("audit", folder, "--confidence", "0.5", "--out", str(tmp_path / "elsewhere"))
    assert found["epsilon_claimed"] is None
    assert not found["refuted"]
    assert found["confidence"] == 0.5
    assert found["page"] == str(tmp_path / "elsewhere" / "private-audit.html")


@pytest.mark.parametrize("target", ["employed", "age"])
def test_a_table_is_audited_by_its_canaries(table, target):
    arguments = (str(table / "people.csv"), "--target", target, "--schema", str(table / "people.toml"))
    told("train", *arguments, "--steps", "5", "--canaries", "40", "--canary-kind", "blank", "--out", str(table / "run"))
    found = told("audit", str(table / "run"))
    prose = run_tacit("audit", str(table / "run")).stdout
    assert "The bound may be published" in prose
    assert "no budget paid for" not in prose
    assert found["auc"] is None
    assert found["canaries"]["kind"] == "blank"
    assert found["epsilon_lower"] <= found["epsilon_claimed"]
    assert "is a table" in refusal("audit", str(table / "people.csv"))


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
    assert "canaries=200: all of them were trained on" in refusal("audit", str(copy))
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refusal("audit", str(copy), "--out", str(tmp_path / "file" / "audit"))


def test_folders_that_cannot_be_audited_are_refused(planted, tmp_path):
    folder, _ = planted
    for content in (None, json.dumps({"schema": 1, "teachers": 10})):  # nothing, and what another command left
        if content:
            (tmp_path / "run.json").write_text(content)
        line = refusal("audit", str(tmp_path), "--out", str(tmp_path / "audit"))
        assert "no canaries were planted" in line
        assert "reads runs of tacit train" in line
    (tmp_path / "run.json").write_bytes((folder / "run.json").read_bytes())
    line = refusal("audit", str(tmp_path))
    assert "no canaries were planted" in line
    assert "--canaries" in line
    (tmp_path / Planting.FILE_NAME).write_bytes((folder / Planting.FILE_NAME).read_bytes())
    assert "model.safetensors" in refusal("audit", str(tmp_path))
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refusal("audit", str(folder), "--out", str(tmp_path / "file" / "audit"))
    assert "confidence=95" in refusal("audit", str(folder), "--confidence", "95", "--out", str(tmp_path / "audit"))
    assert not (tmp_path / "audit").exists()
    line = refusal("audit", str(folder), "--epsilon", "2")
    assert "epsilon=2.0" in line
    assert "Leave it out" in line
