"""Subsets are the first distinct positions of a key's stream, however they are computed, and uniform."""

import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.core import InputError, chacha, native
from tacit.core.errors import UnsupportedError
from tacit.core.randomness import Randomness
from tacit.sampling import FixedSize, Poisson, Sampler, TruncatedPoisson, compiled_subset
from tacit.sampling.compiled_subset import Subsets, compiled_subsets
from tacit.sampling.subset import lemire, uniform_subset

RNG = Randomness(unsafe_seed=11)
ACCEPT = 1e-3  # the seeds are fixed, so that a test that passes once passes always
THIRDS = 3 * 2**30  # positions are threes of four words, so that one word in four must be dropped


def slow_subset(examples: int, size: int, key: bytes) -> list[int]:
    """The definition, one word after another in Python's whole numbers."""
    fewer, found, block = min(size, examples - size), set(), 0
    while len(found) < fewer:
        for word in chacha.keystream(chacha.key_words(key), (0, 0, 0), block, 1)[:, 0].tolist():
            position, rest = divmod(word * examples, 2**32)
            if rest >= 2**32 % examples and len(found) < fewer:
                found.add(position)
        block += 1
    return sorted(found) if fewer == size else sorted(set(range(examples)) - found)


@pytest.fixture(scope="module")
def compiled() -> Subsets:
    return compiled_subsets()


@st.composite
def sizes_of(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A number of examples, up to where most subsets are sorted, and some sizes with the edges among them."""
    examples = draw(st.integers(0, 130) | st.integers(0, 5000) | st.integers(0, 10**5))
    size = st.integers(0, examples) | st.integers(0, min(examples, 30)) | st.sampled_from([0, examples // 2, examples])
    return examples, draw(st.lists(size, max_size=4))


@given(sizes_of(), st.data())
@settings(max_examples=150, deadline=None)
def test_the_compiled_subsets_are_the_ordinary_ones(
    compiled: Subsets, sizes_of: tuple[int, list[int]], data: st.DataObject
) -> None:
    examples, sizes = sizes_of
    keys = [data.draw(st.binary(min_size=32, max_size=32)) for _ in sizes]
    found = compiled(examples, sizes, keys).result()
    assert len(found) == len(sizes)
    for size, key, subset in zip(sizes, keys, found, strict=True):
        assert subset.dtype == np.int64
        np.testing.assert_array_equal(subset, uniform_subset(examples, size, key))


@given(st.integers(1, 400), st.floats(0, 1), st.binary(min_size=32, max_size=32))
@settings(max_examples=60, deadline=None)
def test_subsets_are_the_first_distinct_positions(examples: int, share: float, key: bytes) -> None:
    size = round(share * examples)
    assert uniform_subset(examples, size, key).tolist() == slow_subset(examples, size, key)


LARGE = [THIRDS, THIRDS + 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32]


@pytest.mark.parametrize("examples", LARGE)
@pytest.mark.parametrize("size", [0, 1, 700])
def test_large_data_sets_take_the_same_positions_however_they_are_computed(
    compiled: Subsets, examples: int, size: int
) -> None:
    key = RNG.device_key(examples, size)
    expected = slow_subset(examples, size, key)
    assert uniform_subset(examples, size, key).tolist() == expected
    assert compiled(examples, [size], [key]).result()[0].tolist() == expected


# Uniform positions


@given(st.integers(1, 2**32) | st.sampled_from(LARGE), st.data())
def test_as_many_words_give_one_position_as_another(examples: int, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, examples - 1) | st.sampled_from([0, examples - 1]))
    first, end = (-(-place * 2**32 // examples) for place in (position, position + 1))
    if end - first < 10_000:
        words = np.arange(first, end, dtype=np.uint64).astype(np.uint32)
        assert lemire(words, examples).tolist() == [position] * (2**32 // examples)
    around = np.array([first - 1, end], dtype=np.int64).clip(0, 2**32 - 1).astype(np.uint32)
    assert position not in lemire(around[[first > 0, end < 2**32]], examples)


def thirds_pvalue(positions: np.ndarray) -> float:
    return float(stats.chisquare(np.bincount(positions % 3, minlength=3)).pvalue)


def test_no_third_is_favoured_and_keeping_every_word_is_found_out(compiled: Subsets) -> None:
    key = RNG.device_key("thirds")
    assert thirds_pvalue(uniform_subset(THIRDS, 3000, key)) > ACCEPT
    assert thirds_pvalue(compiled(THIRDS, [3000], [key]).result()[0]) > ACCEPT
    words = chacha.keystream(chacha.key_words(key), (0, 0, 0), 0, 3000 // 16).astype(np.uint64).ravel()
    assert thirds_pvalue((words * np.uint64(THIRDS) >> np.uint64(32)).astype(np.int64)) < 1e-6


def pair_pvalue(pairs: list[list[int]]) -> float:
    """All three pairs out of three examples equally often."""
    return float(stats.chisquare(np.bincount([sum(pair) for pair in pairs], minlength=4)[1:]).pvalue)


def test_pairs_are_equally_likely_and_next_ones_for_those_drawn_twice_are_found_out() -> None:
    keys = [RNG.device_key("pairs", number) for number in range(3000)]
    assert pair_pvalue([uniform_subset(3, 2, key).tolist() for key in keys]) > ACCEPT

    def next_free(key: bytes) -> list[int]:
        one, two = lemire(chacha.keystream(chacha.key_words(key), (0, 0, 0), 0, 1)[:2, 0], 3).tolist()
        return [one, two if two != one else min(one + 1, 2) if one < 2 else 1]

    assert pair_pvalue([next_free(key) for key in keys]) < 1e-6


@pytest.mark.parametrize("examples", [2**32 + 1, 2**33, 3 * 2**40])
def test_data_sets_beyond_32_bits(compiled: Subsets, examples: int) -> None:
    key = RNG.device_key(examples)
    subset = uniform_subset(examples, 2000, key)
    assert subset.dtype == np.int64
    assert len(subset) == 2000
    assert (np.diff(subset) > 0).all()
    assert subset[0] >= 0
    assert subset[-1] < examples
    assert stats.kstest(subset / examples, "uniform").pvalue > ACCEPT
    assert stats.chisquare(np.bincount(subset % 16, minlength=16)).pvalue > ACCEPT
    with pytest.raises(UnsupportedError, match="must be at most 4294967296 for compiled code"):
        compiled(examples, [2000], [key])


# Samplers


@pytest.mark.parametrize(
    "sampler",
    [FixedSize(500, 50), FixedSize(500, 500), Poisson(0.3), Poisson(1e-3), TruncatedPoisson(0.3, 500, 150)],
    ids=repr,
)
def test_samplers_draw_many_lots_at_once_as_one_by_one(compiled: Subsets, sampler: Sampler) -> None:
    lots = sampler.begin(range(3, 40), 500, RNG, compiled).result()
    assert len(lots) == 37
    for step, lot in zip(range(3, 40), lots, strict=True):
        np.testing.assert_array_equal(lot, sampler.indices(step, 500, RNG))


def test_many_lots_at_once_are_refused_where_one_is(compiled: Subsets) -> None:
    with pytest.raises(InputError, match="examples=499: must be the declared 500"):
        FixedSize(500, 50).begin(range(3), 499, RNG, compiled)
    with pytest.raises(InputError, match="step=-1"):
        Poisson(0.5).begin(range(-1, 0), 500, RNG, compiled)


def test_drawings_that_nobody_waits_for_end_before_their_memory_is_given_back(compiled: Subsets) -> None:
    keys = [bytes([number] * 32) for number in range(100)]
    for _ in range(20):
        compiled(10**5, [50_000] * 100, keys)
    kept = compiled(10**5, [50_000] * 100, keys)
    first, again = kept.result(), kept.result()
    assert all(map(np.array_equal, first, again))
    del kept
    np.testing.assert_array_equal(first[99], uniform_subset(10**5, 50_000, keys[99]))


# Planted bugs and refusals


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("uint32_t(product) >= threshold", "true"),
        ("start[12] = 0", "start[12] = 0, start[4] ^= 1"),
        ("found += mark != before", "found += accepted"),
        ("counter_ += chacha::kLanes", "counter_ += chacha::kLanes + 1"),
        ("marked < size ?", "false ?"),
    ],
    ids=["every word kept", "another key", "repetitions counted", "words left out", "no complement"],
)
def test_wrong_machine_code_is_refused(monkeypatch, tmp_path, right: str, wrong: str) -> None:
    header, source = (tmp_path / name for name in ("chacha_blocks.h", "subset.cpp"))
    texts = {
        header: Path(native.__file__).with_name(header.name).read_text(),
        source: compiled_subset._SOURCE.read_text(),
    }
    assert sum(text.count(right) for text in texts.values()) == 1
    for path, text in texts.items():
        path.write_text(text.replace(right, wrong))
    monkeypatch.setattr(compiled_subset, "_SOURCE", source)
    monkeypatch.setattr(compiled_subset, "_compiled", compiled_subset._compiled.__wrapped__)
    with pytest.raises(UnsupportedError, match="not the ordinary ones"):
        compiled_subsets()


def test_a_compiler_that_fails_and_one_that_is_missing_are_reported(monkeypatch) -> None:
    monkeypatch.setattr(compiled_subset, "_compiled", compiled_subset._compiled.__wrapped__)
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(subprocess.CalledProcessError):
        compiled_subsets()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnsupportedError, match="no C\\+\\+ compiler"):
        compiled_subsets()


@pytest.mark.parametrize("size", [-1, 11])
def test_sizes_that_do_not_fit_are_refused(compiled: Subsets, size: int) -> None:
    key = bytes(32)
    for draw in (lambda: uniform_subset(10, size, key), lambda: compiled(10, [3, size], [key, key])):
        with pytest.raises(InputError, match=f"size={size}: must be from 0 to the 10 examples"):
            draw()


@pytest.mark.parametrize("keys", [[bytes(32)], [bytes(32), bytes(31)], [bytes(33), bytes(31)], [bytes(32)] * 3])
def test_keys_that_are_missing_or_too_short_are_refused(compiled: Subsets, keys: list[bytes]) -> None:
    with pytest.raises(InputError, match="keys: must be 2 of 32 bytes"):
        compiled(10, [3, 4], keys)


def test_time_grows_with_the_subset_and_rounds_are_few(monkeypatch) -> None:
    """Half of the examples takes the most rounds: each leaves less than half of what was missing, on average."""
    rounds = []
    monkeypatch.setattr("tacit.sampling.subset.lemire", lambda words, n: rounds.append(len(words)) or lemire(words, n))
    uniform_subset(2**16, 2**15, bytes(32))
    assert rounds[0] == 2**15
    assert len(rounds) < 2 * math.log2(2**15)
    assert sum(rounds) == pytest.approx(2**16 * math.log(2), rel=0.02)
