"""Philox: the published answers, a slow oracle, and the layout of a block."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random123 import ANSWERS, Answer, oracle_words

from tacit.core import philox
from tacit.core.chacha import Nonce, Words
from tacit.core.errors import InputError

word = st.integers(0, 2**32 - 1)
KEY = np.arange(8, dtype=np.uint32)


def blocks(key: Words, nonce: Nonce, first_block: int, count: int) -> Words:
    """Block by word."""
    out = np.empty(64 * count, dtype=np.uint8)
    philox.write_keystream(out, key, nonce, first_block)
    return out.view("<u4").reshape(count, 16)


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_published_answers(answer: Answer) -> None:
    first_block, *nonce = answer.counter
    found = blocks(np.array(answer.key * 4, dtype=np.uint32), tuple(nonce), first_block, 1)
    assert found.tolist() == [list(answer.words * 4)]
    assert oracle_words(answer.counter, answer.key) == answer.words


@given(key=st.lists(word, min_size=8, max_size=8), nonce=st.tuples(word, word, word), first=st.integers(0, 2**32 - 3))
def test_every_quarter_of_a_block_has_two_words_of_the_key(key: list[int], nonce: Nonce, first: int) -> None:
    expected = [
        [made for pair in range(0, 8, 2) for made in oracle_words((block, *nonce), tuple(key[pair : pair + 2]))]
        for block in range(first, first + 3)
    ]
    assert blocks(np.array(key, dtype=np.uint32), nonce, first, 3).tolist() == expected


def test_a_stretch_of_blocks_is_the_same_however_it_is_cut() -> None:
    whole = blocks(KEY, (1, 2, 3), 5, 40)
    np.testing.assert_array_equal(whole, np.concatenate([blocks(KEY, (1, 2, 3), 5 + at, 8) for at in range(0, 40, 8)]))
    assert blocks(KEY, (1, 2, 3), 5, 0).shape == (0, 16)


@pytest.mark.parametrize(("first", "count"), [(2**32, 1), (2**32 - 2, 3), (-1, 1)])
def test_a_counter_never_runs_into_the_nonce(first: int, count: int) -> None:
    with pytest.raises(InputError, match=r"leave 32 bits\. Take another nonce"):
        blocks(KEY, (1, 2, 3), first, count)


def test_parts_of_a_block_and_other_nonces_are_refused() -> None:
    with pytest.raises(InputError, match="must be whole blocks of 64"):
        philox.write_keystream(np.empty(65, dtype=np.uint8), KEY, (1, 2, 3), 0)
    with pytest.raises(InputError, match="must be three whole numbers of 32 bits"):
        blocks(KEY, (1, 2, 2**32), 0, 1)
