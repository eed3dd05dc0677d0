"""Torch's own generators under a secret, while a private step draws masks and views from them."""

import contextlib
import functools
import hashlib
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator

from tacit.core.errors import UnsupportedError

_SEED = slice(0, 8)  # where the bytes of a CPU generator's state hold the seed that it was given
_WORDS = slice(24, 24 + 8 * 624)  # and the Mersenne Twister's words
_ONE_AT_A_TIME = threading.RLock()  # all threads of a process share torch's generators


class SecretDraws:
    """Generators whose numbers a key decides, as long as nobody else sets them.

    Args:
        generators: torch's own, of the CPU and of the model's device.
        key: 256 bits.
    """

    def __init__(self, generators: Sequence[Generator], key: bytes) -> None:
        self._generators, self._key = generators, key
        self.begin()

    def begin(self) -> None:
        """Everything from the first number on."""
        self._seeds = [set_key(generator, self._key) for generator in self._generators]

    @property
    def are_secret(self) -> bool:
        """Whether no other seed or state was set meanwhile, as by a model, a data set or a compiler in a thread."""
        return [generator.initial_seed() for generator in self._generators] == self._seeds


@contextlib.contextmanager
def drawing_in_secret(key: bytes, device: torch.device) -> Iterator[SecretDraws]:
    """While it lasts, what torch's generators draw is decided by this key, whatever they were seeded with.

    Dropout, and augmentations without a generator of their own, draw for each record in the order of the lot: one
    record more moves the draws of all after it. Where nobody knows them, each record's are as random as before, and the
    guarantee holds on average over them, hence as it stands. To somebody who knows the seed all of the lot has changed,
    by more than the noise is made for. With a key for each step, masks of a step that is done again are the same, and
    masks of a run are gone with its key.

    Afterwards the generators go on from where they stood. Steps of other threads wait.

    Args:
        key: 256 bits of the run's randomness, for this step alone.
        device: the model's. Its generator and the CPU's are meant.
    """
    generators = [torch.default_generator]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    with _ONE_AT_A_TIME:
        states = [generator.get_state() for generator in generators]
        try:
            yield SecretDraws(generators, key)
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)


def torch_generator(key: bytes, device: torch.device | str = "cpu") -> Generator:
    """A new generator that this key decides, such as a `Randomness.device_key`; see `set_key`."""
    generator = Generator(device)
    set_key(generator, key)
    return generator


def set_key(generator: Generator, key: bytes) -> int:
    """Everything that the generator draws from here on is decided by a key of 256 bits.

    On a CPU SHAKE-256 expands it to all 624 words of the Mersenne Twister: ``manual_seed`` takes 32 bits of a seed, few
    enough to try them all. On a GPU torch's Philox takes a seed of 64. Neither is a cipher: whoever sees enough of the
    numbers themselves can tell the others of the same key.

    Returns:
        The seed that the generator names, which tells this key from others.

    Raises:
        UnsupportedError: this torch keeps the state of its CPU generator in another form.
    """
    if generator.device.type != "cpu":
        seed = int.from_bytes(hashlib.shake_256(key).digest(8), "little")
        generator.manual_seed(seed)
        return seed
    drawn = hashlib.shake_256(key).digest(8 + 4 * 624)
    state = _fresh_state().copy()
    state[_SEED] = np.frombuffer(drawn[:8], np.uint8)
    state[_WORDS].view(np.uint64)[:] = np.frombuffer(drawn[8:], np.uint32)
    generator.set_state(torch.from_numpy(state))
    return int.from_bytes(drawn[:8], "little")


@functools.cache
def _fresh_state() -> npt.NDArray[np.uint8]:
    """The state of a generator that has drawn nothing, whose form was looked at."""
    seed = 5489
    state: npt.NDArray[np.uint8] = Generator().manual_seed(seed).get_state().numpy()
    if [*state[_SEED].view(np.uint64), *state[_WORDS].view(np.uint64)] != [seed, *_seeded_twister(seed)]:
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
