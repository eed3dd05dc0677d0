"""Votes are counted right, and wrong ones are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tacit.core import InputError
from tacit.pate import count_votes


@given(arrays.arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(0, 6)), elements=st.integers(0, 3)))
def test_counts_are_those_of_a_loop(predictions):
    votes = count_votes(predictions, 4)
    assert votes.shape == (predictions.shape[1], 4)
    for query in range(predictions.shape[1]):
        assert votes[query].tolist() == [(predictions[:, query] == k).sum() for k in range(4)]


def test_bad_input_is_named():
    with pytest.raises(InputError, match=r"predictions between 0 and 4: must be class numbers from 0 to 3"):
        count_votes([[0, 4]], 4)
    with pytest.raises(InputError, match=r"must be \[teachers, queries\] of class numbers. Take the argmax"):
        count_votes([[0.5]], 4)
