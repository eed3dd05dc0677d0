"""The adding problem: what it promises of its sequences, whatever their length."""

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import InputError
from tacit.datasets.adding import adding


@settings(max_examples=30, deadline=None)
@given(length=st.integers(2, 60), train=st.integers(1, 40), test=st.integers(1, 40))
def test_the_target_is_the_sum_of_the_two_marked_numbers(length, train, test):
    data = adding(length, train_examples=train, test_examples=test)
    assert (len(data.train), len(data.test), data.input_shape) == (train, test, (length, 2))
    for split in (data.train, data.test):
        values, marks = split.inputs.unbind(2)
        assert split.inputs.dtype == split.targets.dtype == torch.float32
        assert bool(((values >= 0) & (values <= 1)).all())
        assert bool(((marks == 0) | (marks == 1)).all())
        assert marks[:, : length // 2].sum(1).tolist() == marks[:, length // 2 :].sum(1).tolist() == [1.0] * len(split)
        torch.testing.assert_close((values * marks).sum(1) - 1, split.targets)


def test_it_is_a_regression_whose_constant_has_an_error_of_a_sixth():
    data = adding()
    assert (data.task, data.classes, data.target_bounds) == ("regression", 1, (0.0, 2.0))
    assert float(data.test.targets.square().mean()) == pytest.approx(1 / 6, rel=0.1)
    assert float(data.train.targets.square().mean()) == pytest.approx(1 / 6, rel=0.05)


def test_marks_fall_on_every_place_of_their_half_alike():
    marks = adding(10, train_examples=20_000).train.inputs[:, :, 1].mean(0)
    torch.testing.assert_close(marks, torch.full((10,), 0.2), atol=0.015, rtol=0)


def test_no_two_sequences_are_alike_and_none_is_in_both_splits():
    data = adding(20, train_examples=500, test_examples=500)
    rows = torch.cat([data.train.inputs, data.test.inputs]).flatten(1)
    assert len(torch.unique(rows, dim=0)) == 1000


def test_it_is_the_same_everywhere_and_always():
    data = adding(6, train_examples=4, test_examples=1)
    content = data.train.inputs.numpy().tobytes() + data.train.targets.numpy().tobytes()
    assert hashlib.sha256(content).hexdigest() == "e79debc156439887bd01c8bcc042b19f53dc6f4d816479550aca32bef6da3f7e"


@pytest.mark.parametrize("bad", [{"length": 1}, {"train_examples": 0}, {"test_examples": -1}], ids=str)
def test_what_is_out_of_range_is_refused_by_name(bad):
    with pytest.raises(InputError, match=f"{next(iter(bad))}="):
        adding(**bad)
