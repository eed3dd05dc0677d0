"""ChaCha20: the published vectors, a slow oracle, and nonces that never meet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rfc8439 import VECTORS, Vector, oracle_block

from tacit.core import chacha
from tacit.core.errors import InputError

word = st.integers(0, 2**32 - 1)
KEY = chacha.key_words(bytes(range(32)))


def serialised(vector: Vector) -> str:
    words = chacha.keystream(chacha.key_words(vector.key), vector.nonce, vector.counter, 1)
    return words[:, 0].astype("<u4").tobytes().hex()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_the_published_vectors(vector: Vector) -> None:
    assert serialised(vector) == vector.block


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_the_vectors_reject_another_key_nonce_or_counter(vector: Vector) -> None:
    key = chacha.key_words(vector.key)
    first, second, third = vector.nonce
    for nonce, counter in (((first ^ 1, second, third), vector.counter), (vector.nonce, vector.counter ^ 1)):
        assert chacha.keystream(key, nonce, counter, 1)[:, 0].astype("<u4").tobytes().hex() != vector.block
    other = chacha.keystream(key ^ np.uint32(1), vector.nonce, vector.counter, 1)
    assert other[:, 0].astype("<u4").tobytes().hex() != vector.block


@given(key=st.binary(min_size=32, max_size=32), nonce=st.tuples(word, word, word), first=st.integers(0, 2**32 - 3))
def test_every_block_equals_the_one_written_from_the_standard(
    key: bytes, nonce: tuple[int, int, int], first: int
) -> None:
    blocks = chacha.keystream(chacha.key_words(key), nonce, first, 3)
    expected = [oracle_block(key, first + index, nonce) for index in range(3)]
    np.testing.assert_array_equal(blocks.T, np.array(expected, dtype=np.uint32))


def test_a_stretch_of_blocks_is_the_same_however_it_is_cut() -> None:
    whole = chacha.keystream(KEY, (1, 2, 3), 5, 40)
    parts = [chacha.keystream(KEY, (1, 2, 3), 5 + start, 8) for start in range(0, 40, 8)]
    np.testing.assert_array_equal(whole, np.concatenate(parts, axis=1))
    assert chacha.keystream(KEY, (1, 2, 3), 0, 0).shape == (16, 0)


def test_the_key_is_left_as_it_was() -> None:
    before = KEY.copy()
    chacha.keystream(KEY, (0, 0, 0), 0, 4)
    np.testing.assert_array_equal(KEY, before)


@pytest.mark.parametrize(("first", "blocks"), [(2**32, 1), (2**32 - 2, 3), (-1, 1)])
def test_a_counter_never_wraps_round(first: int, blocks: int) -> None:
    with pytest.raises(InputError, match=r"leave 32 bits\. Take another nonce"):
        chacha.keystream(KEY, (0, 0, 0), first, blocks)


def test_a_number_of_blocks_below_zero_is_refused() -> None:
    with pytest.raises(InputError, match=r"blocks=-1: must be at least 0"):
        chacha.keystream(KEY, (0, 0, 0), 0, -1)


@pytest.mark.parametrize("blocks", [0, 1, 1023, 1024, 1025, 2500])
def test_serialised_blocks_are_the_words_one_block_after_another(blocks: int) -> None:
    """Also where the cipher is called again for the next stretch, and over whatever the array held."""
    out = np.full(64 * blocks + 64, 7, dtype=np.uint8)
    chacha.write_keystream(out[: 64 * blocks], KEY, (1, 2, 3), 9)
    np.testing.assert_array_equal(
        out[: 64 * blocks].view("<u4").reshape(-1, 16).T, chacha.keystream(KEY, (1, 2, 3), 9, blocks)
    )
    assert (out[64 * blocks :] == 7).all()
    for index in range(0, blocks, 311):
        block = out[64 * index : 64 * (index + 1)].view("<u4")
        assert tuple(block) == oracle_block(bytes(range(32)), 9 + index, (1, 2, 3))


def test_a_part_of_a_block_is_refused() -> None:
    with pytest.raises(InputError, match=r"out: has 65 bytes, must be whole blocks of 64"):
        chacha.write_keystream(np.zeros(65, dtype=np.uint8), KEY, (0, 0, 0), 0)


def test_the_last_counter_is_still_served() -> None:
    last = chacha.keystream(KEY, (0, 0, 0), 2**32 - 1, 1)[:, 0]
    assert tuple(last) == oracle_block(bytes(range(32)), 2**32 - 1, (0, 0, 0))


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_keys_of_another_length_are_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"has {size} bytes, must have 32"):
        chacha.key_words(bytes(size))


@pytest.mark.parametrize("nonce", [(1, 2), (1, 2, 3, 4), (0, 0, -1), (2**32, 0, 0), (0.5, 0, 0), "abc", None])
def test_bad_nonces_are_refused(nonce: object) -> None:
    with pytest.raises(InputError, match=r"nonce=.* three whole numbers of 32 bits\. Take it from nonce_for"):
        chacha.check_nonce(nonce)  # type: ignore[arg-type]


def test_numpy_words_make_a_nonce() -> None:
    assert chacha.check_nonce((np.uint32(2**32 - 1), np.int64(0), 1)) == (2**32 - 1, 0, 1)


def test_a_nonce_belongs_to_its_name() -> None:
    names = [f"layers.{index}.weight" for index in range(2000)]
    nonces = chacha.nonces_for(names)
    assert list(nonces) == names
    assert len(set(nonces.values())) == len(names)
    assert all(nonces[name] == chacha.nonce_for(name) == chacha.check_nonce(nonces[name]) for name in names)
    for place in range(3):  # every word carries bits of the name
        assert len({nonce[place] for nonce in nonces.values()}) > len(names) - 5


def test_names_that_would_share_noise_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"names='a': has the same nonce as 'a'.*name of its own"):
        chacha.nonces_for(["a", "b", "a"])
    monkeypatch.setattr(chacha, "nonce_for", lambda name: (len(name), 0, 0))
    with pytest.raises(InputError, match=r"names='dd': has the same nonce as 'cc'"):
        chacha.nonces_for(["b", "cc", "dd"])
