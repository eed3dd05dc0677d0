"""Linear teachers: the same as descent on their weights, and functions of their own parts."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from tacit.core import InputError
from tacit.datasets import Split
from tacit.pate import count_votes, partition
from tacit.pate.linear_teachers import LinearFitting, LinearTeachers

CLASSES, FEATURES = 3, 12


def records(count=90, seed=0, features=FEATURES, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, CLASSES, (count,), generator=generator)
    inputs = 5 + 2 * torch.randn(count, features, generator=generator, dtype=dtype)
    inputs[torch.arange(count), targets] += 6.0
    return Split(inputs, targets)


def descent_on_weights(inputs, targets, classes, how):
    """One teacher as anybody would write it: autograd on the weights of a linear layer."""
    mean = inputs.mean(0)
    length = (inputs - mean).square().sum(1).mean().sqrt()
    given = torch.cat([(inputs - mean) / length, torch.full((len(inputs), 1), 0.1**0.5, dtype=inputs.dtype)], 1)
    largest = torch.linalg.matrix_norm(given @ given.T @ given @ given.T, "fro").sqrt()
    step = 1 / (largest / (2 * len(inputs)) + how.ridge)
    before = ahead = torch.zeros(classes, given.shape[1], dtype=inputs.dtype)
    for turn in range(how.steps):
        weights = ahead.clone().requires_grad_(True)
        loss = F.cross_entropy(given @ weights.T, targets) + how.ridge / 2 * weights.square().sum()
        (slope,) = torch.autograd.grad(loss, weights)
        after = ahead - step * slope
        ahead = after + turn / (turn + 3) * (after - before)
        before = after
    weights = before[:, :-1] / length
    return weights, 0.1**0.5 * before[:, -1] - weights @ mean


@pytest.mark.parametrize("ridge", [0.0, 1e-2])
@pytest.mark.parametrize("at_once", [1, 2, 16])
def test_inner_products_change_nothing(ridge, at_once):
    data = records()
    parts = [np.arange(40), np.arange(40, 41), np.arange(41, 84), np.arange(84, 90)]  # of different sizes
    how = LinearFitting(steps=60, ridge=ridge, at_once=at_once)
    teachers = LinearTeachers.train(data, CLASSES, parts, how)
    for number in (0, 2, 3):
        weights, offsets = descent_on_weights(*data[parts[number]], CLASSES, how)
        torch.testing.assert_close(teachers.weights[number], weights, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(teachers.offsets[number], offsets, rtol=1e-9, atol=1e-9)


def test_the_descent_ends_where_another_solver_does():
    data = records(60)
    how = LinearFitting(steps=8000, ridge=1e-2)
    teacher = LinearTeachers.train(data, CLASSES, [np.arange(60)], how)
    inputs = data.inputs.numpy()
    mean = inputs.mean(0)
    length = np.sqrt(((inputs - mean) ** 2).sum(1).mean())
    given = np.hstack([(inputs - mean) / length, np.full((60, 1), 0.1**0.5)])
    solver = LogisticRegression(C=1 / (60 * how.ridge), fit_intercept=False, tol=1e-10, max_iter=10_000)
    solver.fit(given, data.targets.numpy())
    np.testing.assert_allclose(teacher.weights[0].numpy() * length, solver.coef_[:, :-1], atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 10**6), st.integers(0, 5))
def test_another_part_changes_nothing(sizes, seed, changed):
    data = records(sum(sizes), seed)
    ends = np.cumsum([0, *sizes])
    parts = [np.arange(first, last) for first, last in itertools.pairwise(ends)]
    changed %= len(parts)
    other = Split(data.inputs.clone(), data.targets.clone())
    other.inputs[parts[changed][0]] = 1e3
    how = LinearFitting(steps=15)
    before, after = (LinearTeachers.train(one, CLASSES, parts, how) for one in (data, other))
    for number in range(len(parts)):
        if number != changed:
            assert torch.equal(before.weights[number], after.weights[number])
            assert torch.equal(before.offsets[number], after.offsets[number])


def test_a_record_more_in_one_part_changes_one_teacher():
    data = records(90)
    parts = [np.arange(0, 31), np.arange(31, 62), np.arange(62, 89)]
    longer = [*parts[:2], np.arange(62, 90)]
    before, after = (LinearTeachers.train(data, CLASSES, one) for one in (parts, longer))
    torch.testing.assert_close(before.weights[:2], after.weights[:2], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(before.weights[2], after.weights[2])


def test_teachers_learn_and_vote():
    data = records(600, dtype=torch.float32)
    told = []
    teachers = LinearTeachers.train(data, CLASSES, partition(600, 20), progress=told.append)
    assert told == [0.4, 0.8, 1.0]
    assert teachers.count == 20
    predictions = teachers.predictions(data.inputs)
    assert predictions.shape == (20, 600)
    scores = torch.einsum("nf,tcf->tnc", data.inputs, teachers.weights) + teachers.offsets[:, None]
    assert np.array_equal(predictions, scores.argmax(2).numpy())
    assert (count_votes(predictions, CLASSES).argmax(1) == data.targets.numpy()).mean() > 0.9


def test_large_features_and_steep_losses_do_not_diverge():
    data = records(40, features=3, dtype=torch.float32)
    data.inputs.mul_(1e6)
    teachers = LinearTeachers.train(data, CLASSES, [np.arange(40)], LinearFitting(steps=1000))
    assert teachers.excluded == ()
    assert (teachers.predictions(data.inputs)[0] == data.targets.numpy()).mean() > 0.8


def test_records_that_are_all_equal_say_what_most_are():
    inputs = torch.full((5, FEATURES), 0.1)
    teachers = LinearTeachers.train(Split(inputs, torch.tensor([2, 1, 2, 1, 2])), CLASSES, [np.arange(5)])
    assert teachers.predictions(torch.randn(7, FEATURES)).tolist() == [[2] * 7]
    alone = LinearTeachers.train(Split(inputs, torch.tensor([2, 1, 2, 1, 2])), CLASSES, [np.array([1])])
    assert alone.predictions(torch.randn(7, FEATURES)).tolist() == [[1] * 7]


def test_a_class_that_is_missing_keeps_its_place():
    data = records(60)
    parts = [np.flatnonzero(data.targets.numpy() != k) for k in range(CLASSES)]
    teachers = LinearTeachers.train(data, CLASSES, parts)
    votes = count_votes(teachers.predictions(data.inputs), CLASSES)
    assert votes.shape == (60, CLASSES)
    assert (votes.sum(1) == 3).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_teacher_that_is_not_finite_never_votes(bad):
    data = records(90)
    data.inputs[5, 0] = bad
    parts = partition(90, 6)
    sick = next(number for number, part in enumerate(parts) if 5 in part)
    teachers = LinearTeachers.train(data, CLASSES, parts)
    assert teachers.excluded == (sick,)
    assert teachers.count == 5
    assert teachers.predictions(data.inputs[:4]).shape == (5, 4)


def test_bad_input_is_named():
    with pytest.raises(InputError, match="every teacher needs a record"):
        LinearTeachers.train(records(), CLASSES, [np.arange(3), np.arange(0)])
    with pytest.raises(InputError, match="a teacher has 8193 records, must be at most 8192"):
        LinearTeachers.train(records(8193), CLASSES, [np.arange(8193)])
    for wrong in ({"steps": 0}, {"ridge": -1.0}, {"at_once": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            LinearFitting(**wrong)
