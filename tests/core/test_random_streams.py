"""A stream is ChaCha20 as RFC 8439 prints it, under a key of its own, and nothing weaker."""

import hashlib
import pickle
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from randomgen import ChaCha
from rfc8439 import VECTORS, Vector, oracle_block

from tacit.core.randomness import Randomness, _encode, _keyed_stream

NO_NONCE = [vector for vector in VECTORS if vector.nonce == (0, 0, 0)]  # streams have no other
BLOCK_BYTES = 64
SECRET = bytes(range(100, 132))
RNG = Randomness.from_secret_key(SECRET, voids_guarantee=False)
paths = st.lists(st.one_of(st.text(max_size=6), st.integers()), max_size=4)
each_vector = pytest.mark.parametrize("vector", NO_NONCE, ids=lambda vector: vector.name)


@pytest.fixture(params=[True, False], ids=["vector instructions", "plain"])
def instructions(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways in which the package computes a block."""
    switch = ChaCha(key=0)
    before = switch.use_simd
    if request.param and not before:
        pytest.skip("this processor has no vector instructions")
    switch.use_simd = request.param
    yield
    switch.use_simd = before


def block_of(stream: np.random.Generator, counter: int) -> str:
    return stream.bytes(BLOCK_BYTES * (counter + 1))[-BLOCK_BYTES:].hex()


def derived_key(path: list[str | int], *, digest_size: int = 32) -> bytes:
    return hashlib.blake2b(_encode(path), key=SECRET, digest_size=digest_size, person=b"tacit/stream").digest()


def serialised(key: bytes, blocks: int) -> bytes:
    words = [oracle_block(key, counter, (0, 0, 0)) for counter in range(blocks)]
    return np.array(words, dtype="<u4").tobytes()


@each_vector
def test_the_published_vectors(vector: Vector, instructions: None) -> None:
    assert block_of(_keyed_stream(vector.key), vector.counter) == vector.block


def test_enough_of_the_published_vectors_apply() -> None:
    assert {vector.counter for vector in NO_NONCE} >= {0, 1, 2}
    assert any(any(vector.key) for vector in NO_NONCE)


@each_vector
@pytest.mark.parametrize("rounds", [8, 12, 18, 22])
def test_the_vectors_reject_another_number_of_rounds(vector: Vector, rounds: int) -> None:
    key = int.from_bytes(vector.key, "little")
    near_miss = np.random.Generator(ChaCha(key=key, rounds=rounds))
    assert block_of(near_miss, vector.counter) != vector.block


@given(paths)
def test_a_stream_is_the_cipher_under_a_key_of_256_bits_from_its_whole_path(path: list[str | int]) -> None:
    drawn = RNG.stream(*path).bytes(3 * BLOCK_BYTES)
    assert drawn == serialised(derived_key(path), 3)
    half = derived_key(path, digest_size=16)
    near_misses = [half + bytes(16), half + half, derived_key(path)[:16] * 2, derived_key([*path, 0])]
    assert all(drawn != serialised(key, 3) for key in near_misses)


def test_what_numpy_draws_is_made_of_the_words_in_their_order() -> None:
    words = np.frombuffer(serialised(derived_key(["a"]), 64), dtype="<u8")
    np.testing.assert_array_equal(RNG.stream("a").integers(0, 2**64, len(words), dtype=np.uint64), words)
    np.testing.assert_array_equal(RNG.stream("a").random(len(words)), (words >> 11) * 2.0**-53)


def test_the_counter_goes_on_past_32_bits() -> None:
    """A stream of more than 256 GiB does not begin again; the generator counts words, the cipher blocks of 16."""
    last = ChaCha(key=int.from_bytes(SECRET, "little"), counter=16 * (2**32 - 1)).random_raw(16).astype("<u8").tobytes()
    carried = oracle_block(SECRET, 0, (1, 0, 0))  # the second word of the counter is where RFC 8439 begins the nonce
    assert last == np.array([oracle_block(SECRET, 2**32 - 1, (0, 0, 0)), carried], dtype="<u4").tobytes()
    assert last[BLOCK_BYTES:] != serialised(SECRET, 1)


def words_of(stream_of: Callable[[int], np.random.Generator], streams: int = 64) -> list[int]:
    return [word for number in range(streams) for word in stream_of(number).bit_generator.random_raw(100).tolist()]


def test_no_two_paths_share_a_word() -> None:
    """A chance below 2e-12 of two equal ones among 6,400 words of 64 bits."""
    words = words_of(lambda number: RNG.stream("noise", number))
    assert len(set(words)) == len(words)
    # Near misses: a part of the path that does not count, and two streams that overlap by one block of the cipher.
    deaf = words_of(lambda number: RNG.stream("noise", min(number, 62)))
    assert len(set(deaf)) == len(deaf) - 100
    key = int.from_bytes(SECRET, "little")
    overlapping = words_of(lambda number: np.random.Generator(ChaCha(key=key, counter=12 * 16 * number)), streams=2)
    assert len(set(overlapping)) < len(overlapping)


def test_threads_that_share_a_stream_draw_every_word_once() -> None:
    stream, drawn, together, size = RNG.stream("shared"), [], threading.Barrier(4), 20_000

    def draw() -> None:
        together.wait()
        drawn.append(stream.integers(0, 2**64, size, dtype=np.uint64))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = RNG.stream("shared").integers(0, 2**64, 4 * size, dtype=np.uint64)
    np.testing.assert_array_equal(np.sort(np.concatenate(drawn)), np.sort(alone))


@pytest.mark.parametrize("before", [0, 3, 16, 21])
def test_a_pickled_stream_goes_on_where_it_was(before: int) -> None:
    stream = RNG.stream("pickled")
    stream.integers(0, 2**32, before, dtype=np.uint32)
    again = pickle.loads(pickle.dumps(stream))
    assert again.bytes(200) == stream.bytes(200)
