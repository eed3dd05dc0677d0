"""Torch's own generators under a secret, while a private step draws masks and views from them."""

import functools
import hashlib
import threading
from collections.abc import Iterable
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from tacit.core.errors import UnsupportedError

_SEED = slice(0, 8)  # where the bytes of a CPU generator's state hold the seed that it was given
_WORDS = slice(24, 24 + 8 * 624)  # and the Mersenne Twister's words
_MARK = 0x7AC17  # the upper half of the seed that a CPU generator names under a key

_ONE_AT_A_TIME = threading.RLock()  # all threads of a process share torch's generators
_under_way: "list[SecretDraws]" = []  # one, unless a loss function takes a private step itself
_put_back: dict[Generator, Tensor] = {}  # where the last of them left torch's generators


class SecretDraws:
    """While it lasts, what torch's generators draw is decided by a key, whatever they were seeded with.

    Dropout, and augmentations without a generator of their own, draw for each record in the order of the lot: one
    record more moves the draws of all after it. Where nobody knows them, each record's are as random as before, and the
    guarantee holds on average over them, hence as it stands. To somebody who knows the seed all of the lot has changed,
    by more than the noise is made for. With a key for each step, masks of a step that is done again are the same, and
    masks of a run are gone with its key.

    A context manager, of one use: within it `begin` sets the generators, and whoever never calls it pays nothing. At
    the end they go on from where they stood. Those of other threads wait.

    Args:
        key: 256 bits of the run's randomness, for this step alone. Each generator has a part of it for itself.
        device: the model's. The CPU's generator is meant too and, of several GPUs, that of each.
    """

    def __init__(self, key: bytes, device: torch.device) -> None:
        self._key, self._device = key, device
        self._outside: dict[Generator, Tensor] = {}
        self._seeds: dict[Generator, int] = {}

    def __enter__(self) -> Self:
        _ONE_AT_A_TIME.acquire()
        return self

    def begin(self) -> None:
        """From the first number on, also once more.

        Raises:
            UnsupportedError: a device whose generators are not known here.
        """
        if not self._outside:
            self._outside = _states_outside(_generators(self._device))
            _under_way.append(self)
        for generator in self._outside:
            part = hashlib.shake_256(self._key + str(generator.device).encode()).digest(32)
            self._seeds[generator] = set_key(generator, part)

    @property
    def are_secret(self) -> bool:
        """Whether no other seed or state was set since, as by a model, a data set or a compiler in a thread.

        Numbers of the same key that are drawn again, after a state was put back, are as secret as before.
        """
        return all(generator.initial_seed() == seed for generator, seed in self._seeds.items())

    def refusal(self) -> UnsupportedError:
        """What is said where they are not secret."""
        return UnsupportedError(
            "torch's generators: were seeded, or set to another state, within the step, by the model, the loss "
            "function, the data set or another thread. What dropout draws then is no secret of the run. Take out what "
            "seeds them, or put it within torch.random.fork_rng(). What differs between records must be drawn outside "
            "of that, or from a tacit.training.secret_draws.torch_generator."
        )

    def __exit__(self, *_: object) -> None:
        try:
            if self._outside:
                _under_way.remove(self)
                for generator, state in self._outside.items():
                    generator.set_state(state)
                _put_back.update(self._outside)
        finally:
            _ONE_AT_A_TIME.release()


def _generators(device: torch.device) -> list[Generator]:
    if device.type not in ("cpu", "cuda"):
        raise UnsupportedError(
            f"device={device.type!r}: what dropout draws on it cannot be kept secret. Train on 'cpu' or 'cuda'."
        )
    return [torch.default_generator, *(torch.cuda.default_generators if device.type == "cuda" else ())]


def _states_outside(generators: Iterable[Generator]) -> dict[Generator, Tensor]:
    """Where torch's generators stand outside of steps.

    A compiler in another thread puts them back to where it found them. Where that was within a step that is over, they
    stand under its key again, for whoever asks; then what was put back last counts.
    """
    is_left_over = not _under_way and torch.default_generator.initial_seed() >> 32 == _MARK
    known = _put_back if is_left_over else {}
    return {generator: known.get(generator, generator.get_state()) for generator in generators}


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
    drawn = np.frombuffer(hashlib.shake_256(key).digest(4 * 625), np.uint32)
    seed = _MARK << 32 | int(drawn[0])
    state = _fresh_state().copy()
    state[_SEED].view(np.uint64)[:] = seed
    state[_WORDS].view(np.uint64)[:] = drawn[1:]
    generator.set_state(torch.from_numpy(state))
    return seed


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
