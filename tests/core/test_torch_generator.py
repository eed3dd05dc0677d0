"""Generators of torch's whose whole state is secret, against numpy's Mersenne Twister."""

import numpy as np
import pytest
import torch

from tacit.core import randomness as room
from tacit.core.errors import UnsupportedError
from tacit.core.randomness import Randomness, torch_generator

RNG = Randomness(unsafe_seed=3)


class Scripted:
    """A stream that gives this seed and these words."""

    def __init__(self, seed, words):
        self._given = [np.int64(seed), words]

    def integers(self, high, size=None):
        return self._given.pop(0)


def words(seed):
    return np.random.default_rng(seed).integers(2**32, size=624)


def drawn(generator, count=2000):
    """Pairs of the twister's words: the first of each is the upper half."""
    return torch.empty(count, dtype=torch.int64).random_(-(2**63), None, generator=generator).tolist()


def test_every_word_of_the_twister_comes_from_the_stream():
    twister = np.random.MT19937(0)
    state = twister.state
    state["state"] = {"key": words(1).astype(np.uint32), "pos": 624}
    twister.state = state
    pairs = twister.random_raw(4000).astype(object).reshape(2000, 2)
    expected = [(first << 32 | second) for first, second in pairs]
    found = drawn(torch_generator(Scripted(5, words(1))))
    assert [number % 2**64 for number in found] == expected


@pytest.mark.parametrize("place", [0, 1, 311, 623])
def test_no_word_is_left_out(place):
    other = words(1)
    other[place] ^= 2**31
    one, two = (torch_generator(Scripted(5, each)) for each in (words(1), other))
    assert drawn(one) != drawn(two)


def test_a_seed_alone_is_32_bits_of_secret_on_a_cpu_and_no_generator_is_left_with_it():
    near = 1, 1 + 2**32
    assert drawn(torch.Generator().manual_seed(near[0])) == drawn(torch.Generator().manual_seed(near[1]))
    first, second = (torch_generator(Scripted(seed, words(seed))) for seed in near)
    assert drawn(first) != drawn(second)


def test_a_stream_gives_its_generator_again_and_no_other():
    assert drawn(torch_generator(RNG.stream("a"))) == drawn(torch_generator(RNG.stream("a")))
    assert drawn(torch_generator(RNG.stream("a"))) != drawn(torch_generator(RNG.stream("b")))


def test_torchs_own_generator_stays_where_it_was():
    before = torch.get_rng_state()
    torch_generator(Randomness().stream("a"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("start", [16, 32])
def test_a_state_in_an_unknown_form_is_refused(monkeypatch, start):
    monkeypatch.setattr(room, "_TWISTER_WORDS", slice(start, start + 8 * 624))
    with pytest.raises(UnsupportedError, match=r"torch=.*unknown form\. Install a version"):
        torch_generator(RNG.stream("a"))
