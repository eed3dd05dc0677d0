"""The compiled noise is the ordinary one, at every place and under the same checks."""

import subprocess

import pytest
import torch

from tacit.core import compiled_noise
from tacit.core.chacha import nonce_for
from tacit.core.compiled_noise import compiled_adder
from tacit.core.device_noise import add_normal_, key_tensor
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.randomness import Randomness

TILE = 1280
MANY = 40 * TILE  # enough for several threads


@pytest.fixture(scope="module")
def add():
    return compiled_adder()


@pytest.mark.parametrize("count", [0, 1, 127, TILE - 1, TILE, TILE + 1, 2 * TILE, MANY - 1, MANY, MANY + 777])
def test_the_noise_is_that_of_the_ordinary_way_at_every_place(add, count):
    key, nonce = key_tensor(Randomness(unsafe_seed=3).device_key("noise", 4), device="cpu"), nonce_for("weight")
    found, expected = torch.full((count,), 0.5), torch.full((count,), 0.5)
    add(found, 2.0, key, nonce)
    add_normal_(expected, 2.0, key, nonce)
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)
    assert bool((found != 0.5).all())  # no value without noise


def test_small_and_large_noise_is_right_to_a_few_units_in_the_last_place(add):
    key, nonce, count = key_tensor(bytes(range(32)), device="cpu"), (9, 8, 7), 2_000_000
    found, expected = torch.zeros(count), torch.zeros(count, dtype=torch.float32)
    add(found, 1.0, key, nonce)
    add_normal_(expected, 1.0, key, nonce)
    assert float(((found - expected) / expected).abs().max()) < 16 * torch.finfo(torch.float32).eps
    assert float(expected.abs().min()) < 1e-6
    assert float(expected.abs().max()) > 4.5


def test_nothing_is_written_outside_the_values(add):
    held = torch.zeros(3 * TILE)
    add(held[TILE : TILE + 700], 1.0, key_tensor(bytes(32), device="cpu"), (0, 0, 0))
    assert not bool(held[:TILE].any())
    assert not bool(held[TILE + 700 :].any())
    assert bool((held[TILE : TILE + 700] != 0).all())


def test_the_noise_does_not_depend_on_the_number_of_threads(add):
    key, before = key_tensor(bytes(32), device="cpu"), torch.get_num_threads()
    drawn = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            values = torch.zeros(MANY)
            add(values, 1.0, key, (1, 1, 1))
            drawn.append(values)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*drawn)


def test_other_values_take_the_ordinary_way(add):
    key, nonce = key_tensor(bytes(range(32)), device="cpu"), (1, 2, 3)
    for values in (torch.zeros(MANY, dtype=torch.float64), torch.zeros(MANY, dtype=torch.bfloat16)):
        expected = values.clone()
        add(values, 1.5, key, nonce)
        add_normal_(expected, 1.5, key, nonce)
        assert torch.equal(values, expected)


def test_keys_and_nonces_give_noise_of_their_own(add):
    drawn = []
    for key, nonce in ((bytes(32), (0, 0, 0)), (bytes(32), (0, 0, 1)), (bytes([1] + [0] * 31), (0, 0, 0))):
        values = torch.zeros(2, MANY)
        add(values, 1.0, key_tensor(key, device="cpu"), nonce)
        drawn.append(values.flatten())
        assert abs(float(values.std()) - 1) < 0.01
        assert abs(float((values[0] * values[1]).mean())) < 0.015  # the tiles of one tensor are not alike
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert abs(float((drawn[first] * drawn[second]).mean())) < 0.01


def test_autograd_knows_that_the_values_were_written(add):
    values = torch.zeros(10)
    before = values._version
    add(values, 1.0, key_tensor(bytes(32), device="cpu"), (0, 0, 0))
    assert values._version > before


@pytest.mark.parametrize(
    ("values", "scale", "words", "nonce"),
    [
        (torch.zeros(4, 4).t()[:2], 1.0, 8, (0, 0, 0)),
        (torch.zeros(4), -1.0, 8, (0, 0, 0)),
        (torch.zeros(4), float("nan"), 8, (0, 0, 0)),
        (torch.zeros(4), 1.0, 7, (0, 0, 0)),
        (torch.zeros(4), 1.0, 8, (0, 0, 2**32)),
    ],
)
def test_bad_arguments_are_refused_as_ever(add, values, scale, words, nonce):
    with pytest.raises(InputError):
        add(values, scale, torch.zeros(words, dtype=torch.int32), nonce)
    assert not bool(values.any())


def test_noise_that_is_not_the_ordinary_one_is_refused(monkeypatch):
    monkeypatch.setattr(compiled_noise, "_compiled", lambda: lambda values, *_: values.add_(0.1))
    with pytest.raises(UnsupportedError, match="not the ordinary one"):
        compiled_adder()


def test_a_compiler_that_fails_and_one_that_is_missing_are_reported(monkeypatch):
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(subprocess.CalledProcessError):
        compiled_noise._load()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnsupportedError, match="no C\\+\\+ compiler"):
        compiled_noise._load()
