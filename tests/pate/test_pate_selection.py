"""Questions are chosen by what is public, and the least certain come first."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tacit.core import InputError
from tacit.pate.selection import least_confident_rows, random_rows, representative_rows, student_probabilities


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 9))
def test_the_least_certain_come_first_as_by_a_loop(count, wanted, seed):
    stream = np.random.default_rng(seed)
    probabilities = stream.dirichlet(np.ones(3), size=count).round(1)
    probabilities[:, 0] += 1 - probabilities.sum(1)  # rounded, so that there are ties
    probabilities = np.abs(probabilities) / np.abs(probabilities).sum(1, keepdims=True)
    asked = stream.permutation(count)[: count // 3].tolist()
    left, expected = [row for row in range(count) if row not in asked], []
    while left and len(expected) < wanted:
        unsure = min(left, key=lambda row: (max(probabilities[row]), row))
        expected.append(unsure)
        left.remove(unsure)
    assert least_confident_rows(probabilities, wanted, asked=asked).tolist() == expected


@given(st.integers(1, 50), st.integers(1, 60), st.integers(0, 3))
def test_random_rows_never_repeat_and_the_seed_decides(count, wanted, seed):
    rows = random_rows(count, wanted, seed=seed)
    assert len(rows) == len(set(rows.tolist())) == min(count, wanted)
    assert set(rows.tolist()) <= set(range(count))
    assert rows.tolist() == random_rows(count, wanted, seed=seed).tolist()


def test_every_row_has_the_same_chance_to_be_asked_for():
    found = np.bincount([random_rows(10, 3, seed=seed)[place] for seed in range(3000) for place in range(3)])
    assert np.abs(found - 900).max() < 5 * np.sqrt(900 * 0.7)


def groups(sizes: tuple[int, ...]) -> torch.Tensor:
    """Rows about as many directions as there are sizes, in a mixed order."""
    stream = np.random.default_rng(3)
    kinds = stream.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return torch.from_numpy(5 * np.eye(8)[kinds] + 0.1 * stream.normal(size=(len(kinds), 8)))


def test_every_group_is_asked_for_once_and_the_largest_first():
    features = groups((40, 7, 20, 3))
    rows = representative_rows(features, 4, seed=1)
    assert features[rows].argmax(1).tolist() == [0, 2, 1, 3]


def test_a_representative_is_the_row_nearest_to_the_middle_of_its_group():
    features = groups((25, 15))
    unit = features / features.norm(dim=1, keepdim=True)
    for row in representative_rows(features, 2):
        group = unit[features.argmax(1) == features[row].argmax()]
        distances = (group - group.mean(0)).norm(dim=1)
        assert (unit[row] - group.mean(0)).norm() == pytest.approx(distances.min().item(), rel=1e-4)


def test_representatives_leave_out_what_was_asked_and_end_where_rows_are_alike():
    features = groups((10, 10))
    asked = representative_rows(features, 2)
    assert not set(representative_rows(features, 15, asked=asked).tolist()) & set(asked.tolist())
    assert len(representative_rows(features, 40, asked=asked)) == 18
    alike = torch.ones(9, 3)
    assert len(representative_rows(alike, 4)) == 1


def test_probabilities_are_those_of_the_student_out_of_training():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    inputs = torch.randn(25, 4)
    found = student_probabilities(model, inputs, rows_at_once=7)
    assert model.training
    model.eval()
    outputs = model(inputs).detach().double()
    for row in range(25):
        expected = outputs[row].exp() / outputs[row].exp().sum()
        np.testing.assert_allclose(found[row], expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("bad", [[[0.5, 0.6]], [[1.5, -0.5]], [[float("nan"), 1.0]], [[3.0, 1.0]]])
def test_what_is_no_distribution_is_refused(bad):
    with pytest.raises(InputError, match=r"must be at least 0 and add up to 1 in every row. Take the softmax"):
        least_confident_rows(np.array(bad), 1)


def test_bad_input_is_named():
    with pytest.raises(InputError, match=r"probabilities of shape \(2,\)"):
        least_confident_rows(np.array([0.5, 0.5]), 1)
    with pytest.raises(InputError, match="wanted=0"):
        least_confident_rows(np.array([[0.5, 0.5]]), 0)
