"""Generators of torch's whose whole state is secret, against numpy's Mersenne Twister."""

import hashlib

import numpy as np
import pytest
import torch

from tacit.core.errors import UnsupportedError
from tacit.training import secret_draws as room
from tacit.training.secret_draws import set_key, torch_generator

KEY = bytes(range(32))


def drawn(generator, count=2000):
    """Pairs of the twister's words, the first of each in the upper half."""
    return torch.empty(count, dtype=torch.int64).random_(-(2**63), None, generator=generator).tolist()


def test_every_word_of_the_twister_comes_from_the_key():
    twister = np.random.MT19937(0)
    words = np.frombuffer(hashlib.shake_256(KEY).digest(4 + 4 * 624)[4:], "<u4")
    twister.state = {**twister.state, "state": {"key": words, "pos": 624}}
    pairs = twister.random_raw(4000).astype(object).reshape(-1, 2)
    assert [number % 2**64 for number in drawn(torch_generator(KEY))] == [one << 32 | two for one, two in pairs]


@pytest.mark.parametrize("bit", [0, 31, 32, 255])
def test_every_bit_of_the_key_matters(bit):
    near = (int.from_bytes(KEY, "little") ^ 1 << bit).to_bytes(32, "little")
    assert not set(drawn(torch_generator(KEY))) & set(drawn(torch_generator(near)))


def test_torchs_own_seeding_takes_32_bits_alone():
    """Why `set_key` is there; should this fail, torch has learned better."""
    one, two = (torch.Generator().manual_seed(seed) for seed in (1, 1 + 2**32))
    assert drawn(one) == drawn(two)


def test_a_key_gives_its_numbers_again_whatever_was_drawn_before():
    generator = torch.Generator()
    torch.randn(7, generator=generator)  # leaves a second normal for the next call
    set_key(generator, KEY)
    assert torch.equal(torch.randn(9, generator=generator), torch.randn(9, generator=torch_generator(KEY)))
    assert drawn(torch_generator(KEY)) == drawn(torch_generator(KEY))


def test_the_seed_that_a_generator_names_tells_its_key():
    generator = torch.Generator()
    seed = set_key(generator, KEY)
    torch.rand(3, generator=generator)
    assert generator.initial_seed() == seed
    assert set_key(generator, bytes(32)) != seed


def test_torchs_own_generator_stays_where_it_was():
    before = torch.get_rng_state()
    torch_generator(KEY)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("start", [16, 32])
def test_a_state_in_an_unknown_form_is_refused(monkeypatch, start):
    monkeypatch.setattr(room, "_WORDS", slice(start, start + 8 * 624))
    monkeypatch.setattr(room, "_fresh_state", room._fresh_state.__wrapped__)
    with pytest.raises(UnsupportedError, match=r"torch=.*unknown form\. Install a version"):
        torch_generator(KEY)
