"""Whole runs of PATE on a device beside the CPU: nothing of them stays behind, and nothing mixes."""

import dataclasses

import numpy as np
import pytest
import torch
import torch._dynamo  # before a generator is put in the place of torch's own
from another_device import AWAY, AnotherDevice, generator
from sklearn.naive_bayes import GaussianNB

from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, Split
from tacit.pate import experiment
from tacit.pate.experiment import PateResult, run_pate
from tacit.pate.settings import Choices, pate_settings
from tacit.pate.students import (
    GAN,
    FixMatch,
    Perceptron,
    RunningTargets,
    SelfTraining,
    Student,
    StudentEnsemble,
    Supervised,
)
from tacit.pate.voters import Shares, estimator_voters

SIZE = 28
# A few steps each: what mixes devices does so in all of them, and every operation on the other device takes long.
QUICK: dict[str, Student] = {
    "self-training": SelfTraining(steps=3, rounds=2, batch_size=16),
    "fixmatch": FixMatch(steps=3, batch_size=8),
    "gan": GAN(steps=3, batch_size=8),
    "supervised": Supervised(steps=3),
}
QUICK_ENSEMBLE = StudentEnsemble(
    2, 2, RunningTargets(steps=2, batch_size=16), Perceptron(hidden=16, steps=2, batch_size=16, views=1)
)

TESTED = {"sigma": 0.5, "threshold": 4, "sigma_threshold": 0.5}


def squares(count: int, seed: int) -> Split:
    """Images with and without a bright square, on the other device."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    images = 0.3 * rng.random((count, 1, SIZE, SIZE))
    images[labels == 1, :, 8:20, 8:20] += 0.6
    return Split(torch.from_numpy(images).float().to(AWAY), torch.from_numpy(labels).to(AWAY))


def data(name: str = "mnist") -> DataSet:
    return DataSet(name, squares(80, 0), squares(60, 1), 2, (1, SIZE, SIZE), "made")


@pytest.fixture
def elsewhere(monkeypatch):
    monkeypatch.setattr(torch, "Generator", generator)
    with AnotherDevice():
        yield


def run(student: str, **choices) -> PateResult:
    few = {"teachers": 8, "queries": 20, "rounds": 2, "choose": "least-confident", "model": "norm-cnn", **choices}
    plan = pate_settings(data(), Choices(student=student, **few))
    guide = "self-training" if student == "ensemble" else student
    ensemble = None if plan.ensemble is None else QUICK_ENSEMBLE
    return run_pate(data(), dataclasses.replace(plan, student=QUICK[guide], ensemble=ensemble), Randomness())


@pytest.mark.parametrize(
    ("student", "choices"),
    [
        ("self-training", {"aggregator": "lnmax", "gamma": 2.0}),
        ("self-training", {"aggregator": "private-knn", "sampling_rate": 0.5, "voters": 5, "sigma": 0.3}),
        ("ensemble", {"aggregator": "private-knn", "sampling_rate": 0.5, "voters": 5, "sigma": 0.3}),
        ("gan", {"aggregator": "gnmax", "sigma": 0.5}),
        ("supervised", {"aggregator": "interactive-gnmax", **TESTED, "confidence": 0.6}),
        ("fixmatch", {"aggregator": "confident-gnmax", **TESTED}),
    ],
    ids=lambda value: value if isinstance(value, str) else value["aggregator"],
)
def test_a_run_keeps_to_its_device(elsewhere, student, choices):
    result = run(student, **choices)
    assert next(result.model.parameters()).device == AWAY
    assert result.aggregator_accuracy > 0.8


def test_estimators_see_copies(elsewhere):
    plan = pate_settings(data(), Choices(teachers=8, queries=20, gamma=2.0))
    voters = estimator_voters(Shares(8), GaussianNB())
    result = run_pate(data(), dataclasses.replace(plan, student=QUICK["supervised"], voters=voters), Randomness())
    assert result.aggregator_accuracy > 0.8


def test_features_that_stay_on_the_cpu_are_caught(elsewhere, monkeypatch):
    def left_behind(dataset, transform):
        train, test = (Split(transform(split.inputs).cpu(), split.targets) for split in (dataset.train, dataset.test))
        return dataclasses.replace(dataset, train=train, test=test)

    monkeypatch.setattr(experiment, "prepared", left_behind)
    with pytest.raises(RuntimeError, match="tensors on two devices"):
        run("supervised", gamma=2.0)


def test_devices_that_mix_are_seen(elsewhere):
    """What the runs above rest on: the error that a GPU would raise."""
    there = torch.zeros(3, device=AWAY)
    with pytest.raises(RuntimeError, match="tensors on two devices"):
        there + torch.zeros(3)
    with pytest.raises(RuntimeError, match="tensors on two devices"):
        torch.zeros(3)[torch.zeros(2, dtype=torch.int64, device=AWAY)]
    with pytest.raises((RuntimeError, TypeError)):
        there.numpy()
    assert (there + torch.ones(())).cpu().tolist() == [1.0, 1.0, 1.0]
    assert there[np.array([0, 1])].device == AWAY
