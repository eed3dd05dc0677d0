"""Small data of the same form in the place of what the recipes load."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.io import savemat

from tacit.datasets import DataSet, Split
from tacit.datasets.svhn import read_svhn
from tacit.models.norm_cnn import norm_cnn
from tacit.pate import settings
from tacit.pate.students import Perceptron, RunningTargets, SelfTraining, StudentEnsemble
from tacit.recipes import census_employed, pate_images

_ROWS = 1500


@pytest.fixture
def census(tmp_path, monkeypatch):
    """A made-up census in which those with a degree work, and nobody beyond 65."""
    rng = np.random.default_rng(0)
    names = ["state", "sex", "age", "educ", "income", "latino", "black", "asian", "married", "divorced", "uscitizen"]
    names += ["children", "disability", "militaryservice", "employed", "englishability", "fips"]
    columns = {name: rng.integers(0, 2, _ROWS) for name in names}
    columns["age"], columns["educ"] = rng.integers(18, 94, _ROWS), rng.integers(1, 17, _ROWS)
    columns["income"] = rng.integers(-10_000, 717_000, _ROWS)
    columns["employed"] = (columns["educ"] >= 13) & (columns["age"] < 65)
    lines = [",".join(names)] + [
        ",".join(str(int(cell)) for cell in row) for row in zip(*columns.values(), strict=True)
    ]
    (tmp_path / "fulton.csv").write_text("\n".join(lines))
    monkeypatch.setattr(census_employed, "census_file", lambda: tmp_path / "fulton.csv")
    return columns


@pytest.fixture
def small_svhn(tmp_path, monkeypatch) -> DataSet:
    """Bright and dark images, in files as SVHN's are, and learners that suit them, for every recipe of PATE."""
    splits = []
    for name, count in (("train", 60), ("test", 40)):
        labels = np.resize([1, 10], count).astype(np.uint8)[:, None]
        noise = np.random.default_rng(count).integers(0, 60, (32, 32, 3, count))
        images = np.where(labels.ravel() == 1, 20, 170) + noise
        images[8:20, 8:20] //= 2
        savemat(tmp_path / f"{name}_32x32.mat", {"X": images.astype(np.uint8), "y": labels})
        pixels, digits = read_svhn(tmp_path / f"{name}_32x32.mat")
        splits.append(Split(torch.from_numpy(pixels).float() / 255, torch.from_numpy(digits).long()))
    data = DataSet("svhn", splits[0], splits[1], 10, (3, 32, 32), "made")
    monkeypatch.setattr(pate_images, "load", lambda name: dataclasses.replace(data, name=name))
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path))
    quick = SelfTraining(steps=25, rounds=1, batch_size=16, average=0.8)
    monkeypatch.setattr(settings, "SelfTraining", lambda rounds: dataclasses.replace(quick, rounds=rounds))
    small = StudentEnsemble(
        1, 1, RunningTargets(steps=40, batch_size=16, average=0.8), Perceptron(32, steps=60, views=1)
    )
    monkeypatch.setattr(settings, "StudentEnsemble", lambda **_: small)
    monkeypatch.setattr(settings, "build", lambda _name, shape, classes: norm_cnn(shape, classes, width=8))
    return data


@pytest.fixture
def hasty_student(small_svhn, monkeypatch) -> None:
    """For what does not depend on how well a student learns."""
    monkeypatch.setattr(settings, "SelfTraining", lambda rounds: SelfTraining(steps=2, rounds=1))
    hasty = StudentEnsemble(1, 1, RunningTargets(steps=2, batch_size=8), Perceptron(8, steps=2, views=1))
    monkeypatch.setattr(settings, "StudentEnsemble", lambda **_: hasty)
