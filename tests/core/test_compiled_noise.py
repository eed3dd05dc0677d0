"""The compiled loop draws the same noise as the ordinary one."""

import warnings

import pytest
import torch

from tacit.core.chacha import nonce_for
from tacit.core.compiled_noise import compiled_adder
from tacit.core.device_noise import add_normal_, key_tensor
from tacit.core.randomness import Randomness

CHUNK = 51 * 1280


@pytest.fixture(scope="module")
def add():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's compiler warns about its own parts
        return compiled_adder()


@pytest.mark.parametrize(
    "count", [1, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + 1279, CHUNK + 1281, 2 * CHUNK, 3 * CHUNK + 777]
)
def test_the_noise_is_that_of_the_ordinary_way_at_every_place(add, count):
    key, nonce = key_tensor(Randomness(unsafe_seed=3).device_key("noise", 4), device="cpu"), nonce_for("weight")
    found, expected = torch.full((count,), 0.5), torch.full((count,), 0.5)
    add(found, 2.0, key, nonce)
    add_normal_(expected, 2.0, key, nonce)
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)
    assert bool((found != 0.5).all())  # no value without noise


def test_other_values_take_the_ordinary_way(add):
    key, nonce = key_tensor(bytes(range(32)), device="cpu"), (1, 2, 3)
    for values in (torch.zeros(2 * CHUNK, dtype=torch.float64), torch.zeros(2 * CHUNK, dtype=torch.bfloat16)):
        expected = values.clone()
        add(values, 1.5, key, nonce)
        add_normal_(expected, 1.5, key, nonce)
        assert torch.equal(values, expected)


def test_keys_and_nonces_give_noise_of_their_own(add):
    drawn = []
    for key, nonce in ((bytes(32), (0, 0, 0)), (bytes(32), (0, 0, 1)), (bytes([1] + [0] * 31), (0, 0, 0))):
        values = torch.zeros(2, CHUNK)
        add(values, 1.0, key_tensor(key, device="cpu"), nonce)
        drawn.append(values.flatten())
        assert abs(float(values.std()) - 1) < 0.01
        assert abs(float((values[0] * values[1]).mean())) < 0.015  # the chunks of one tensor are not alike
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert abs(float((drawn[first] * drawn[second]).mean())) < 0.01
