"""Runs that were released: whose membership is attacked, with which reference models, and how well that tells."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tacit import models
from tacit.auditing.attacked import AttackedRecords
from tacit.auditing.attacks import Observations, losses
from tacit.auditing.black_box import error_confidences
from tacit.auditing.canaries import Planting, plant, shape_of
from tacit.auditing.findings import Claim
from tacit.auditing.references import References
from tacit.auditing.released import WITH_REFERENCES, attacks_on, audit_released
from tacit.auditing.released_models import released_model, released_student
from tacit.auditing.run_folders import ReleasedRun, read_released
from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, Split, load
from tacit.datasets.tables.origin import TableOrigin
from tacit.training import RunFolder

CPU = torch.device("cpu")
CLAIM = Claim(1.0, 1e-6)
NONE = References(0, "linear")
SMALL_IMAGES = {"input_shape": [1, 8, 8], "classes": 10, "columns": []}


def data(examples=400, classes=3, width=8, noise=0.0):
    """Inputs whose class shows, but for so much noise."""
    stream = torch.Generator().manual_seed(0)
    inputs = torch.randn(examples, width, generator=stream)
    blurred = inputs + noise * torch.randn(inputs.shape, generator=stream)
    targets, half = blurred[:, :classes].argmax(1), examples // 2
    train, test = Split(inputs[:half], targets[:half]), Split(inputs[half:], targets[half:])
    return DataSet("made", train, test, classes, (width,), "here")


class Leaking(nn.Module):
    """A model that is surer of the true label of some records than it would be, by so much log odds."""

    def __init__(self, model, split, classes, leak):
        super().__init__()
        self.model, self.classes, self.leak = model, classes, leak
        self.known = dict(zip((row.numpy().tobytes() for row in split.inputs), split.targets.tolist(), strict=True))

    def forward(self, inputs):
        outputs = self.model(inputs).clone()
        for row, given in zip(outputs, inputs, strict=True):
            if (label := self.known.get(given.numpy().tobytes())) is not None:
                row[label] += self.leak
        return outputs


def run_of(model, records, planting=None, network="linear"):
    return ReleasedRun(Path("run"), "run", "made", network, "The released model is.", CLAIM, model, planting, records)


def untaught(classes=3, width=8):
    torch.manual_seed(0)
    return nn.Linear(width, classes)


@pytest.mark.parametrize(("kind", "private"), [("blank", False), ("mislabelled", True)])
def test_records_are_attacked_by_whether_they_were_trained_on(kind, private):
    before = data()
    planted, planting = plant(before, 50, kind, Randomness(unsafe_seed=4))
    model = Leaking(untaught(), planted.train, 3, 1000.0)
    found = audit_released(run_of(model, AttackedRecords.of_training(before, planting), planting), NONE)
    (attack,) = found.attacks
    assert attack.name == "loss"
    assert attack.roc.auc().value == 1.0  # every trained record is known, and no other
    assert len(attack.roc.members) == 150
    gave_way = 50 if kind == "blank" else int((~planting.included).sum())
    assert len(attack.roc.non_members) == 200 + gave_way
    assert found.refuted
    values = found.to_dict()
    assert not values["by_coins"]
    assert not any("ceiling" in point for point in values["attacks"][0]["tpr_at_fpr"])  # of a split no coin dealt
    assert values["auc"] == 1.0
    assert values["tpr_at_fpr"] == {"0.01": 1.0, "0.001": 1.0, "0.0001": 1.0}
    assert ("epsilon_lower" in values["private"]) is private  # people's inputs make it so
    assert {"auc", "tpr_at_fpr", "attacks"} <= set(values["private"]) <= values.keys()
    without = audit_released(run_of(model, None, planting), NONE).to_dict()
    assert without["auc"] is None
    assert without["tpr_at_fpr"] is None
    assert without["epsilon_lower"] == values["epsilon_lower"]


def test_without_canaries_nothing_is_tested_and_nothing_claimed():
    before = data()
    model = Leaking(untaught(), before.train, 3, 1000.0)
    found = audit_released(run_of(model, AttackedRecords.of_training(before)), NONE)
    values = found.to_dict()
    assert (values["epsilon_lower"], values["epsilon_largest"], values["bounds"]) == (0.0, 0.0, [])
    assert values["canaries"] is values["canary_auc"] is None
    assert not values["refuted"]  # however much leaks: no coin was thrown
    assert values["auc"] == 1.0
    assert values["private"] == ["auc", "tpr_at_fpr", "attacks"]
    assert found.drawn()["canary_scores"] is None


@pytest.mark.parametrize(("public", "rest"), [("first", slice(50, None)), ("last", slice(None, 150))])
def test_what_a_student_learned_from_is_neither_member_nor_non_member(public, rest):
    before = data()
    found = AttackedRecords.of_pate(before, public=public, public_inputs=50)
    assert torch.equal(found.pool.inputs[found.member], before.train.inputs)
    assert torch.equal(found.pool.inputs[~found.member], before.test.inputs[rest])
    assert torch.equal(found.pool.targets[~found.member], before.test.targets[rest])
    for wrong in ({"public_inputs": 200}, {"public_inputs": 0}, {"public": "middle"}):
        with pytest.raises(InputError, match="are no part of the 200 test examples"):
            AttackedRecords.of_pate(before, **{"public": public, "public_inputs": 50, **wrong})


def references(records, shadows=8, network="linear", seed=3):
    return References(shadows, network).train(records, randomness=Randomness(unsafe_seed=seed), device=CPU)


def test_every_record_joins_every_reference_model_by_a_coin_members_and_others_alike():
    records = AttackedRecords.of_training(data(2000))
    seen = references(records, shadows=16)
    assert seen.member.shape == (16, 2000)
    shares = [seen.member[:, side].mean() for side in (records.member, ~records.member)]
    assert shares == pytest.approx([0.5, 0.5], abs=0.03)
    assert len({row.tobytes() for row in seen.member}) == 16


def test_the_calibrated_loss_compares_with_models_that_never_saw_the_record():
    """A slow twin, one record at a time; taking the models that saw it, or all, gives other scores."""
    records = AttackedRecords.of_training(data(60, noise=0.5))
    seen = references(records, shadows=24)
    model = untaught()
    attack = attacks_on(model, records, seen)[0]
    assert attack.name == "calibrated-loss"
    with torch.no_grad():
        own = nn.functional.cross_entropy(model(records.pool.inputs), records.pool.targets, reduction="none").numpy()

    def scores(chosen):
        said = losses(seen.confidence[:, 0])
        return np.array([said[chosen[:, row], row].mean() - own[row] for row in range(60)])

    expected = scores(~seen.member)
    assert attack.roc.members == pytest.approx(np.sort(expected[records.member]), abs=1e-5)
    assert attack.roc.non_members == pytest.approx(np.sort(expected[~records.member]), abs=1e-5)
    for wrong in (seen.member, np.ones_like(seen.member)):
        assert np.abs(np.sort(scores(wrong)[records.member]) - attack.roc.members).max() > 1e-3


def test_a_leak_that_drowns_in_how_hard_records_are_is_seen_beside_reference_models():
    before = data(1600, noise=1.5)
    records = AttackedRecords.of_training(before)
    honest = nn.Linear(8, 3)
    with torch.no_grad():  # what fits the data best, without having seen a record
        honest.weight.copy_(torch.cat([torch.eye(3), torch.zeros(3, 5)], dim=1))
        honest.bias.zero_()
    attacks = attacks_on(Leaking(honest, before.train, 3, 0.4), records, references(records, shadows=16))
    assert [attack.name for attack in attacks] == [*WITH_REFERENCES, "loss"]
    areas = {attack.name: attack.roc.auc().value for attack in attacks}
    assert areas["loss"] < 0.62
    assert min(areas[name] for name in WITH_REFERENCES) > areas["loss"] + 0.1
    fair = {attack.name: attack.roc.auc() for attack in attacks_on(honest, records, references(records, shadows=16))}
    assert all(area.low < 0.5 < area.high for area in fair.values())  # the same model without the leak


def regression(examples=300):
    stream = torch.Generator().manual_seed(1)
    inputs = torch.rand(examples, 4, generator=stream)
    targets = (inputs @ torch.tensor([1.0, -1.0, 0.5, 0.0]) + 0.3 * torch.randn(examples, generator=stream)).clamp(
        -1, 1
    )
    half = examples // 2
    train, test = Split(inputs[:half], targets[:half]), Split(inputs[half:], targets[half:])
    return DataSet("made", train, test, 1, (4,), "here", task="regression")


def test_a_regression_is_compared_with_least_squares_of_random_halves():
    records = AttackedRecords.of_training(regression())
    seen = references(records, network="table-mlp")
    inputs, targets = records.pool.inputs.double().numpy(), records.pool.targets.double().numpy()
    design = np.concatenate([np.ones((len(inputs), 1)), inputs], axis=1)
    for row, said in zip(seen.member, seen.confidence[:, 0], strict=True):
        solution = np.linalg.lstsq(design[row], targets[row], rcond=None)[0]
        errors = (design @ solution - targets) ** 2
        assert losses(said) == pytest.approx(errors, abs=2e-3)
    attacks = attacks_on(nn.Linear(4, 1), records, seen)
    assert [attack.name for attack in attacks] == [*WITH_REFERENCES, "loss"]
    assert all(0.4 < attack.roc.auc().value < 0.6 for attack in attacks)


def test_a_regression_that_knows_its_records_by_heart_is_found_out():
    before = regression()
    records = AttackedRecords.of_training(before)
    said = error_confidences(np.where(records.member, 0.0, 0.1))

    class ByHeart(nn.Module):
        def forward(self, inputs):
            shift = torch.from_numpy(np.where(records.member, 0.0, math.sqrt(0.1))).float()
            return (records.pool.targets + shift)[: len(inputs), None]

    for attack in attacks_on(ByHeart(), records, Observations(np.tile(said * 0, (4, 1)), np.eye(4, 300) > 0)):
        assert attack.roc.auc().value == 1.0


@pytest.mark.parametrize("shadows", [-1, 1, 3])
def test_too_few_reference_models_are_refused(shadows):
    with pytest.raises(InputError, match=rf"shadows={shadows}: must be at least"):
        References(shadows, "linear")


def test_reference_models_are_what_was_asked_for_or_what_trains_fast():
    records = AttackedRecords.of_training(data(20))
    counts = [References.suiting(records, "linear", count=asked).count for asked in (None, 0, 4, 30)]
    assert counts == [16, 0, 4, 30]
    suited = {name: References.suiting(records, name).network for name in ("linear", "mlp", "table-mlp", "tanh-cnn")}
    assert suited == {"linear": "linear", "mlp": "mlp", "table-mlp": "table-mlp", "tanh-cnn": "mlp"}
    assert References.suiting(records, "linear", network="mlp").network == "mlp"
    numbers = AttackedRecords.of_training(regression())
    assert References.suiting(numbers, "table-mlp") == References(16, "least-squares")
    assert [References.suiting(None, "linear", count=asked).count for asked in (None, 0)] == [0, 0]
    for refused, said in (
        (lambda: References.suiting(None, "linear", count=8), "shadows=8: the records of the run are not at hand"),
        (lambda: References.suiting(records, "linear", network="tanh-cnn"), "input_shape"),
        (lambda: References.suiting(records, "linear", network="llm"), "model='llm'"),
        (lambda: References.suiting(numbers, "linear", network="mlp"), "model='mlp': a regression is compared with"),
    ):
        with pytest.raises(InputError, match=said):
            refused()


def test_a_released_model_is_read_back_or_refused(tmp_path):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 3))
    RunFolder(tmp_path).save_model(model)
    path = tmp_path / "model.safetensors"
    shape = {"input_shape": [8], "classes": 3, "columns": []}
    again = released_model(path, "linear", shape)
    inputs = torch.randn(5, 8)
    assert torch.equal(again(inputs), model(inputs))
    with pytest.raises(InputError, match="cannot be read as a linear"):
        released_model(path, "linear", {**shape, "classes": 4})
    with pytest.raises(InputError, match="model='Sequential'"):  # what a private selection records
        released_model(path, "Sequential", shape)
    with pytest.raises(InputError, match="cannot be read"):
        released_model(tmp_path / "none.safetensors", "linear", shape)
    path.write_bytes(b"not safetensors")
    with pytest.raises(InputError, match="cannot be read"):
        released_model(path, "linear", shape)


@pytest.mark.parametrize("name", models.MODELS)
def test_a_students_network_is_known_by_its_weights(name, tmp_path):
    shape = {"input_shape": [3, 32, 32], "classes": 10, "columns": []}
    student = models.build(name, [3, 32, 32], 10).eval()
    RunFolder(tmp_path).save_model(student)
    network, model = released_student(tmp_path / "model.safetensors", shape, None)
    inputs = torch.rand(2, 3, 32, 32)
    assert network == name
    assert torch.equal(model(inputs), student(inputs))
    with pytest.raises(InputError, match=r"none of linear, mlp.*Restore it, or run tacit pate again"):
        released_student(tmp_path / "model.safetensors", {**shape, "classes": 9}, None)


def ensemble(features, perceptrons=2):
    """For images of 8 x 8 pixels."""
    torch.manual_seed(2)
    fixed = models.FixedFeatures(features, [1, 8, 8])
    numbers = fixed(torch.zeros(1, 1, 8, 8)).numel()
    see = models.PublicMap(fixed, torch.rand(numbers), torch.randn(numbers, 4))
    heads = [models.perceptron(4, 6, 10) for _ in range(perceptrons)]
    return models.networks_and_perceptrons([models.build("mlp", [1, 8, 8], 10) for _ in range(3)], see, heads).eval()


@pytest.mark.parametrize("features", models.FIXED_FEATURES)
def test_an_ensemble_is_read_back_with_the_features_that_its_record_names(features, tmp_path):
    student, path = ensemble(features), tmp_path / "model.safetensors"
    RunFolder(tmp_path).save_model(student)
    network, model = released_student(path, SMALL_IMAGES, features)
    inputs = torch.rand(20, 1, 8, 8)
    assert network == "mlp"
    assert torch.equal(model(inputs), student(inputs))
    assert not model.training
    for wrong, said in (
        (None, "does not say what the ensemble's perceptrons look through.*Run tacit pate again"),
        ("edges", "features='edges' in the record of .*must be one of inputs, .*Restore run.json, or run tacit pate"),
        (["inputs"], "must be one of inputs"),
        ("scattering" if features == "inputs" else "inputs", "cannot be read as an ensemble of mlp networks"),
    ):
        with pytest.raises(InputError, match=said):
            released_student(path, SMALL_IMAGES, wrong)


def test_networks_alone_need_no_features_and_weights_of_none_are_refused(tmp_path):
    student, path = ensemble("inputs", perceptrons=0), tmp_path / "model.safetensors"
    RunFolder(tmp_path).save_model(student)
    inputs = torch.rand(5, 1, 8, 8)
    assert torch.equal(released_student(path, SMALL_IMAGES, None)[1](inputs), student(inputs))
    with pytest.raises(InputError, match="holds the weights of none of"):
        released_student(path, {**SMALL_IMAGES, "classes": 9}, None)
    state = ensemble("inputs").state_dict()
    del state["members.0.members.1.1.bias"]
    save_file(state, path)
    with pytest.raises(InputError, match=r"ensemble of mlp networks .*Missing key.*members\.0\.members\.1\.1\.bias"):
        released_student(path, SMALL_IMAGES, "inputs")


@pytest.fixture
def digits_run(tmp_path):
    """A folder as ``tacit train digits --canaries 20`` leaves it, and its planting."""
    digits = load("digits")
    planting = plant(digits, 20, "blank", Randomness(unsafe_seed=0))[1]
    statement = {"sentence": "The released model is.", "epsilon": 3.0, "delta": 1e-5}
    record = {"dataset": "digits", "model": "linear", "plan": {"canaries": planting.facts()}, "statement": statement}
    RunFolder(tmp_path).write_run(record)
    RunFolder(tmp_path).save_model(models.build("linear", digits.input_shape, 10))
    (tmp_path / Planting.FILE_NAME).write_bytes(planting.to_bytes())
    return tmp_path, planting


def test_a_run_is_read_with_its_canaries_and_its_records(digits_run):
    folder, planting = digits_run
    run = read_released(folder)
    assert run.claim == Claim(3.0, 1e-5)
    assert len(run.planting) == 20
    assert run.records.member.sum() == len(load("digits").train) - 20
    assert shape_of(load("digits")) == dict(planting.shape)


def test_records_that_the_canaries_were_not_made_for_are_refused(digits_run):
    folder, planting = digits_run
    beyond = torch.cat([planting.places[:-1], torch.tensor([len(load("digits").train)])])
    other = {**planting.shape, "classes": 11}
    for changes in ({"places": beyond}, {"shape": other}):
        (folder / Planting.FILE_NAME).write_bytes(dataclasses.replace(planting, **changes).to_bytes())
        with pytest.raises(InputError, match=r"dataset='digits': its records are not those"):
            read_released(folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": 99}, "schema=99"),
        ({"statement": None}, "has no statement"),
        ({"statement": {"sentence": "A.", "epsilon": 1.0, "delta": None}}, "delta: the run's statement has none"),
        ({"dataset": "elsewhere"}, "no canaries were planted in it, and its records .elsewhere. are not at hand"),
        ({"teachers": 10}, "does not say which part of the test split"),
        ({"teachers": 10, "dataset": "elsewhere"}, "dataset='elsewhere': is not at hand"),
        ({"teachers": 10, "plan": {"public": "first", "public_inputs": 1e6}}, "no part of the 359 test examples"),
    ],
)
def test_records_of_runs_that_cannot_be_attacked_are_refused(digits_run, changes, said):
    folder, _ = digits_run
    (folder / Planting.FILE_NAME).unlink()
    record = json.loads((folder / "run.json").read_text()) | {"plan": {}}
    (folder / "run.json").write_text(json.dumps(record | changes))
    with pytest.raises(InputError, match=said):
        read_released(folder)


def test_what_a_run_that_was_killed_left_behind_is_not_taken_for_this_runs_own(digits_run):
    """Its coins and its rows: an audit of them would find nothing, whatever this run's model leaks."""
    folder, _ = digits_run
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"plan": {}}))
    RunFolder(folder).write_private(TableOrigin.FILE_NAME, TableOrigin("/gone.csv", "0", "", "y").to_bytes())
    run = read_released(folder)
    assert run.planting is None
    assert run.records.member.sum() == len(load("digits").train)


def test_canaries_that_are_lost_are_missed(digits_run):
    folder, _ = digits_run
    (folder / Planting.FILE_NAME).unlink()
    with pytest.raises(InputError, match=f"{Planting.FILE_NAME} is missing"):
        read_released(folder)
