"""The membership benchmark on a pool that is small enough for a test."""

import json
import sys

import numpy as np
import pytest
import torch

from tacit.auditing.ceilings import Ceiling
from tacit.auditing.roc import Roc
from tacit.auditing.shadows import fair_memberships
from tacit.benchmarking import membership, membership_others
from tacit.benchmarking.membership import measure
from tacit.benchmarking.membership_others import other_subjects
from tacit.benchmarking.membership_subjects import Experiment, Setting, Subject, network_subjects
from tacit.core.errors import InputError
from tacit.core.privacy import Budget
from tacit.core.randomness import Randomness
from tacit.datasets import Split
from tacit.pate.students import Supervised
from tacit.training.ensemble import Fitting


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    """Random labels, which only memory can explain."""
    generator = torch.Generator().manual_seed(0)
    pool, test = (
        Split(torch.rand(count, 1, 8, 8, generator=generator), torch.randint(0, 3, (count,), generator=generator))
        for count in (200, 60)
    )
    return Experiment("random", Setting(200, 5, Fitting(200, 64, 2e-2, 0.0), 0.5), pool, test, 3)


@pytest.fixture(scope="module")
def found(experiment) -> dict:
    return measure(experiment, network_subjects(experiment, (1.0,), 0), 0)


def test_plain_models_are_caught_and_rows_say_what_is_allowed(found):
    rows = {(row["subject"], row["shadows"], row["attack"]): row for row in found["rows"]}
    assert rows["plain", "same", "lira-online-fixed"]["auc"]["low"] > 0.7
    private = [row for row in found["rows"] if row["subject"] == "DP-SGD, epsilon 1"]
    assert {row["shadows"] for row in private} == {"same", "plain"}
    for row in private:
        assert row["epsilon"] == pytest.approx(1.0, rel=0.01)
        for point in row["tpr_at_fpr"]:
            assert point["asked_fpr"] < point["ceiling"] <= point["ceiling_of_claim"] * (1 + 1e-6)
            assert point["within"] == (point["tpr"]["high"] <= point["ceiling"])
    assert rows["plain", "same", "loss"]["epsilon"] is None
    assert "ceiling" not in rows["plain", "same", "loss"]["tpr_at_fpr"][0]
    json.dumps(found, allow_nan=False)


def test_a_refuted_claim_is_named():
    """Half of the members above all of a thousand non-members: no epsilon of 1 allows it; the same by chance is not."""
    claimed = Subject("claimed", Budget(1.0, 1e-5), Ceiling.of_claim(1.0, 1e-5), lambda _member, _progress: _never)
    for lifted, beyond in ((5.0, True), (0.0, False)):
        roc = Roc(np.linspace(0, 1, 1000) + lifted * (np.arange(1000) % 2), np.linspace(0, 1, 1000))
        point = membership._point(roc.tpr_at(0.001), claimed)
        assert point["beyond"] == beyond
        assert not (point["beyond"] and point["within"])


def _never(_inputs: torch.Tensor) -> torch.Tensor:
    raise AssertionError("nobody asks")


def test_the_comparison_takes_the_worst_that_was_found(found):
    plain, private = found["compared"]
    rates = [
        point["tpr"]["value"]
        for row in found["rows"]
        for point in row["tpr_at_fpr"]
        if row["subject"] == private["subject"] and row["attack"].startswith("lira") and point["asked_fpr"] == 0.001
    ]
    assert private["tpr"]["value"] == max(rates)
    assert private["plain_over_this"] == pytest.approx(plain["tpr"]["value"] / max(*rates, 0.001))
    accuracies = {row["subject"]: row["member_accuracy"] for row in found["models"]}
    assert accuracies["plain"] > 0.75 > accuracies[private["subject"]]


def test_linear_models_and_students_answer_for_every_record(experiment, monkeypatch):
    monkeypatch.setattr(membership_others, "_TEACHERS", 5)
    monkeypatch.setattr(membership_others, "_QUESTIONS", 10)
    monkeypatch.setattr(membership_others, "_STUDENT", Supervised(steps=5))
    member = fair_memberships(2, 200, Randomness(unsafe_seed=0), "test")
    subjects = other_subjects(experiment, (8.0,), 0)
    assert [subject.name.split(",")[0] for subject in subjects] == [*["logistic regression"] * 2, *["PATE student"] * 2]
    for subject in subjects:
        said = subject.train(member, lambda _share: None)(experiment.pool.inputs)
        assert said.shape == (2, 200, 3)
        assert not torch.equal(said[0], said[1])
        assert (subject.claim is None) == subject.name.endswith("plain")
        assert (subject.ceiling.at(0.001) < 1) == (subject.claim is not None)


def test_more_noise_on_votes_claims_less(experiment):
    students = [s for s in other_subjects(experiment, (), 0) if s.claim is not None]
    assert students[0].claim.epsilon > students[1].claim.epsilon
    assert (students[0].ceiling.at([0.001, 0.01]) > students[1].ceiling.at([0.001, 0.01])).all()


def test_experiments_are_drawn_from_named_sets():
    drawn = Experiment.on("digits", models=5, records=50, seed=1)
    assert len(drawn.pool) == 50
    assert drawn.setting.models == 5
    again = Experiment.on("digits", models=None, records=50, seed=2)
    assert not np.array_equal(drawn.pool.inputs, again.pool.inputs)
    for arguments, message in (
        ({"dataset": "none", "models": None, "records": None}, "dataset='none'"),
        ({"dataset": "digits", "models": 1, "records": None}, "models=1"),
        ({"dataset": "digits", "models": None, "records": 3}, "records=3"),
    ):
        with pytest.raises(InputError, match=message):
            Experiment.on(**arguments, seed=0)


def test_the_command_refuses_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["membership", "--dataset", "nothing"])
    assert membership.main() == 2
    written = capsys.readouterr()
    assert written.err.startswith("tacit: dataset='nothing': must be one of ")
    assert written.err.count("\n") == 1
    assert written.out == ""
