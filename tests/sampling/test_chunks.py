"""Chunks cover a lot exactly, in one shape."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.core import InputError
from tacit.sampling import chunks

lots = st.lists(st.integers(0, 10**12), unique=True, max_size=60).map(lambda values: np.array(values, dtype=np.int64))


@given(lots, st.integers(1, 25))
def test_chunks_have_one_shape_and_hold_the_lot_once_in_order(lot: np.ndarray, size: int) -> None:
    parts = list(chunks(lot, size))
    assert all(part.indices.shape == part.mask.shape == (size,) for part in parts)
    assert all(part.indices.dtype == np.int64 and part.mask.dtype == np.bool_ for part in parts)
    np.testing.assert_array_equal(np.concatenate([lot[:0], *(part.indices[part.mask] for part in parts)]), lot)
    assert sum(int(part.mask.sum()) for part in parts) == len(lot)
    assert len(parts) == -(-len(lot) // size)
    # Padding comes last and names records of the chunk itself, so that it loads nothing else.
    for part in parts:
        assert (np.diff(part.mask.astype(int)) <= 0).all()
        assert np.isin(part.indices[~part.mask], part.indices[part.mask]).all()


def test_pitfall_04_an_empty_lot_has_no_chunk() -> None:
    assert list(chunks(np.empty(0, dtype=np.int64), 4)) == []


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_sizes_that_are_no_counts_are_refused_at_once(size: int) -> None:
    with pytest.raises(InputError, match="size="):
        chunks(np.arange(3), size)
