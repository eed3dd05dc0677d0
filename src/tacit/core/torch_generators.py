"""Torch's generators under keys that nobody can guess, for what is not noise and must be unknown: views, masks."""

import functools
import hashlib

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator

from tacit.core.errors import UnsupportedError

_WORDS = slice(24, 24 + 8 * 624)  # where the bytes of a CPU generator's state hold the Mersenne Twister's words


def torch_generator(key: bytes, device: torch.device | str = "cpu") -> Generator:
    """A new generator that this key decides, such as a `Randomness.device_key`; see `set_key`."""
    generator = Generator(device)
    set_key(generator, key)
    return generator


def set_key(generator: Generator, key: bytes) -> None:
    """Everything that the generator draws from here on is decided by a key of 256 bits.

    On a CPU SHAKE-256 expands it to all 624 words of the Mersenne Twister: ``manual_seed`` takes 32 bits of a seed, few
    enough to try them all. On a GPU torch's Philox takes a seed of 64. Neither is a cipher: whoever sees enough of the
    numbers themselves can tell the others of the same key.

    Raises:
        UnsupportedError: this torch keeps the state of its generator in another form.
    """
    if generator.device.type != "cpu":
        generator.manual_seed(int.from_bytes(hashlib.shake_256(key).digest(8), "little"))
        return
    state = _fresh_state().copy()
    state[_WORDS].view(np.uint64)[:] = np.frombuffer(hashlib.shake_256(key).digest(4 * 624), np.uint32)
    generator.set_state(torch.from_numpy(state))


@functools.cache
def _fresh_state() -> npt.NDArray[np.uint8]:
    """The state of a generator that has drawn nothing, whose form was looked at."""
    seed = 5489
    state: npt.NDArray[np.uint8] = Generator().manual_seed(seed).get_state().numpy()
    if state[_WORDS].view(np.uint64).tolist() != _seeded_twister(seed):
        raise UnsupportedError(
            f"torch={torch.__version__}: keeps the state of its CPU generator in an unknown form. Install a version "
            "that tacit was tested with."
        )
    return state


def _seeded_twister(seed: int) -> list[int]:
    """The Mersenne Twister's words after seeding, by its recurrence."""
    words = [seed]
    for place in range(1, 624):
        words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + place) % 2**32)
    return words
