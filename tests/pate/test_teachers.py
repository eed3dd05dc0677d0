"""One record changes one teacher, and what is kept of them is not trained again."""

import dataclasses
import stat

import numpy as np
import pytest
import torch
from torch import nn

from tacit.core import InputError
from tacit.datasets import Split
from tacit.pate import Teachers, TeacherTraining, count_votes, partition
from tacit.training.ensemble import Fitting, Stack

QUICK = Fitting(steps=20, batch_size=8, learning_rate=0.02)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def records(count: int = 90, seed: int = 0) -> Split:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 3, (count,), generator=generator)
    inputs = torch.randn(count, 4, generator=generator)
    inputs[torch.arange(count), targets] += 4.0
    return Split(inputs, targets)


def test_a_record_more_changes_one_teacher_alone():
    data, training = records(91), TeacherTraining(QUICK)
    fewer = Split(data.inputs[:90], data.targets[:90])
    before = Teachers.train(network, fewer, partition(90, 9), training)
    after = Teachers.train(network, data, partition(91, 9), training)
    said = [teachers.predictions(data.inputs) for teachers in (before, after)]
    weights = [teachers._stacks[0].parameters["0.weight"].detach() for teachers in (before, after)]
    changed = [k for k in range(9) if not torch.allclose(weights[0][k], weights[1][k], atol=1e-6)]
    assert len(changed) == 1
    assert all(np.array_equal(said[0][k], said[1][k]) for k in range(9) if k not in changed)


def test_how_many_train_at_once_changes_nothing():
    data, parts = records(), partition(90, 7)
    all_at_once, few = (
        Teachers.train(network, data, parts, TeacherTraining(QUICK, at_once=size)).predictions(data.inputs)
        for size in (7, 3)
    )
    assert (all_at_once == few).mean() > 0.999


def test_teachers_learn_and_the_global_generator_stays():
    data = records(300)
    torch.manual_seed(9)
    expected = torch.rand(1)
    torch.manual_seed(9)
    teachers = Teachers.train(network, data, partition(300, 10), TeacherTraining(Fitting(steps=60, learning_rate=0.03)))
    assert torch.equal(torch.rand(1), expected)
    votes = count_votes(teachers.predictions(data.inputs), 3)
    assert (votes.argmax(1) == data.targets.numpy()).mean() > 0.95
    assert teachers.count == 10
    assert teachers.excluded == ()


def test_a_class_that_is_missing_in_a_part_still_has_its_votes():
    data = records()
    parts = [np.flatnonzero(data.targets.numpy() == k) for k in range(3)]
    votes = count_votes(Teachers.train(network, data, parts, TeacherTraining(QUICK)).predictions(data.inputs), 3)
    assert votes.shape == (90, 3)
    assert (votes.sum(1) == 3).all()


def test_finished_teachers_are_kept_and_not_trained_again(tmp_path, monkeypatch):
    data, parts = records(), partition(90, 6)
    training = TeacherTraining(QUICK, at_once=2, folder=tmp_path)
    first = Teachers.train(network, data, parts, training).predictions(data.inputs)
    assert len(list(tmp_path.glob("*.safetensors"))) == 6
    fitted = []
    monkeypatch.setattr(Stack, "fit", lambda self, inputs, targets, parts, how, progress: fitted.append(len(parts)))
    assert np.array_equal(Teachers.train(network, data, parts, training).predictions(data.inputs), first)
    assert fitted == []
    sorted(tmp_path.glob("*.safetensors"))[3].unlink()
    Teachers.train(network, data, parts, training)
    assert fitted == [1]
    other = dataclasses.replace(training, fitting=dataclasses.replace(QUICK, steps=21))
    Teachers.train(network, data, parts, other)
    assert fitted == [1, 2, 2, 2]


def test_kept_teachers_are_for_their_owner_alone(tmp_path):
    folder = tmp_path / "teachers"
    Teachers.train(network, records(), partition(90, 2), TeacherTraining(QUICK, folder=folder))
    assert len(list(folder.iterdir())) == 2
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_teacher_that_diverges_is_trained_again_and_else_never_votes():
    data = records()
    data.inputs[5] = torch.nan  # no smaller step helps
    parts = partition(90, 6)
    sick = next(k for k, part in enumerate(parts) if 5 in part)
    teachers = Teachers.train(network, data, parts, TeacherTraining(dataclasses.replace(QUICK, steps=60)))
    assert teachers.excluded == (sick,)
    assert teachers.retrained == (sick,)
    assert teachers.count == 5
    assert teachers.predictions(data.inputs[:4]).shape == (5, 4)


def test_bad_input_is_named():
    with pytest.raises(InputError, match="every teacher needs a record"):
        Teachers.train(network, records(), [np.arange(3), np.arange(0)], TeacherTraining(QUICK))
    with pytest.raises(InputError, match="steps"):
        Fitting(steps=0)
