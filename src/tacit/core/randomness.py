"""The one source of random bits for noise and sampling, and of keys for what else must be unknown.

A `Randomness` holds a 256-bit key from the operating system and hands out independent streams, each named by a path
such as ``("noise", 17)``. A stream is ChaCha20 with 20 rounds under a key of 256 bits that BLAKE2b derives from key and
path, with nonce and counter from zero on, so that

- seeding torch, numpy or random anywhere changes nothing here, and drawing here changes nothing there;
- one step's stream does not depend on how much another step drew, whatever the chunking or the device;
- two different paths never share a stream;
- whoever sees part of a stream, or all of many streams, cannot tell the rest from uniform words without breaking
  ChaCha20 or BLAKE2b.

The words come from the package randomgen, numpy's own distributions turn them into numbers. `Randomness.device_key`
derives further keys of ChaCha20, for noise that `tacit.core.device_noise` draws where the values are, and for lots.

The noise of training steps comes from Philox instead where the source is in the fast mode: a generator that passes
statistical tests and is not cryptographic. It has to be asked for, is meant for training on a GPU, and statements say
that it was used. All else, lots too, stays ChaCha20's: there is no time to win with it.
"""

import functools
import hashlib
import operator
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from randomgen.chacha import ChaCha

from tacit.core.errors import InputError, UnsupportedError
from tacit.core.privacy import FAST_GENERATOR, GENERATOR

if TYPE_CHECKING:
    import torch

_KEY_BYTES = 32
_ROUNDS = 20
_STREAM_DOMAIN = b"tacit/stream"
_DEVICE_KEY_DOMAIN = b"tacit/device-key"


class Randomness:
    """Independent random streams under one secret key.

    Args:
        unsafe_seed: a fixed seed for tests and debugging. **It voids the privacy guarantee**: whoever knows the seed
            can subtract the noise. `voids_guarantee` is then true, and statements say so.
        fast: draws the noise of training steps from Philox, which is not cryptographic (`tacit.core.philox`). Training
            alone honours it (see `fork`). It is meant for GPUs; on a CPU ChaCha20 is the faster one.
    """

    def __init__(self, *, unsafe_seed: int | None = None, fast: bool = False) -> None:
        self.voids_guarantee, self.fast = unsafe_seed is not None, fast
        self._key = (
            secrets.token_bytes(_KEY_BYTES)
            if unsafe_seed is None
            else hashlib.blake2b(str(unsafe_seed).encode(), digest_size=_KEY_BYTES).digest()
        )
        self._noise_keys: dict[str, Callable[[int], bytes]] = {}

    def __repr__(self) -> str:
        return f"Randomness(voids_guarantee={self.voids_guarantee}{', fast=True' if self.fast else ''})"

    @property
    def generator(self) -> str:
        """What the noise of training steps comes from, for statements."""
        return FAST_GENERATOR if self.fast else GENERATOR

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles are refused but under a fixed seed: both sides would go on to draw the same noise."""
        if not self.voids_guarantee:
            raise UnsupportedError(
                "randomness: cannot be copied or pickled, since both copies would draw the same noise. Make a new "
                "Randomness() for each run."
            )
        return super().__reduce_ex__(protocol)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_noise_keys": {}}  # hashes cannot be pickled

    def fork(self, *, may_be_fast: bool = False) -> "Randomness":
        """A source of its own for one run, so that two runs never share a stream even where they were given one source.

        Under a fixed seed it has the same key: a run can then be repeated, and its guarantee is void anyway.

        Args:
            may_be_fast: keeps the fast mode, for runs whose statement names the `generator`; all others leave it.
        """
        fast = self.fast and may_be_fast
        if self.voids_guarantee:
            return self if fast == self.fast else self.from_secret_key(self._key, voids_guarantee=True)
        forked = Randomness(fast=fast)
        forked._key = hashlib.blake2b(forked._key, key=self._key, digest_size=_KEY_BYTES).digest()
        return forked

    def export_secret_key(self) -> bytes:
        """The key itself, for whoever must draw from the same streams after a crash.

        **It is a secret**: whoever holds it can subtract all noise. Keep it where its owner alone can read it, and
        destroy it when the run ends. A restored source may only draw again what was drawn before on the very same sums,
        or what was never drawn.
        """
        return self._key

    @classmethod
    def from_secret_key(cls, key: bytes, *, voids_guarantee: bool, fast: bool = False) -> "Randomness":
        """The source whose key `export_secret_key` gave.

        Args:
            key: 32 bytes.
            voids_guarantee: whether the key came from a fixed seed; statements then say so, as before.
            fast: whether the source was in the fast mode.
        """
        if len(key) != _KEY_BYTES:
            raise InputError(f"key of {len(key)} bytes: must have {_KEY_BYTES}. Give what export_secret_key returned.")
        restored = cls(fast=fast)
        restored._key, restored.voids_guarantee = bytes(key), voids_guarantee
        return restored

    def stream(self, *path: str | int) -> np.random.Generator:
        """A generator that belongs to ``path`` alone; asking twice for one path gives the same numbers twice."""
        return _keyed_stream(self._derive(path, _STREAM_DOMAIN))

    def device_key(self, *path: str | int) -> bytes:
        """A key of 256 bits that belongs to ``path`` alone, for ChaCha20: noise in `device_noise`, and which records a
        step sees.

        BLAKE2b derives it with a personalisation of its own, so that it has nothing in common with the stream of the
        same path, nor with any other. It is a secret: whoever holds it can subtract the noise.
        """
        return self._derive(path, _DEVICE_KEY_DOMAIN)

    def device_keys(self, *path: str | int) -> Callable[[int], bytes]:
        """The `device_key` of ``(*path, number)`` for whatever number, for who asks in every step: what all of them
        have in common is hashed once.
        """
        common = self._hashed(path, _DEVICE_KEY_DOMAIN)

        def key(number: int) -> bytes:
            own = common.copy()
            own.update(_encode_number(number))
            return own.digest()

        return key

    def noise_key(self, step: int) -> bytes:
        """The `device_key` of a training step's noise, for the `generator` of this source.

        The two generators never share a key: what Philox might give away helps nobody against the cipher.
        """
        name = "fast noise" if self.fast else "noise"
        if name not in self._noise_keys:
            self._noise_keys[name] = self.device_keys(name)
        return self._noise_keys[name](step)

    def _derive(self, path: Sequence[str | int], domain: bytes) -> bytes:
        return self._hashed(path, domain).digest()

    def _hashed(self, path: Sequence[str | int], domain: bytes) -> hashlib.blake2b:
        return hashlib.blake2b(_encode(path), key=self._key, digest_size=_KEY_BYTES, person=domain)


def _keyed_stream(key: bytes) -> np.random.Generator:
    """ChaCha20's words from counter and nonce 0 on, each pair of them one of numpy's 64-bit numbers."""
    return np.random.Generator(ChaCha(key=int.from_bytes(key, "little"), rounds=_ROUNDS))


def _encode(path: Sequence[str | int]) -> bytes:
    """An injective encoding: length-prefixed and typed, so that ("a", "b") and ("ab",) or 1 and "1" stay apart."""
    return b"".join([_encode_text(part) if isinstance(part, str) else _encode_number(part) for part in path])


@functools.lru_cache(maxsize=64)  # every step has the same few
def _encode_text(part: str) -> bytes:
    return _with_length(f"s{part}".encode())


def _encode_number(part: int) -> bytes:
    try:
        return _with_length(b"i%d" % operator.index(part))  # numpy's name the same stream as Python's
    except TypeError:
        raise InputError(f"path={part!r}: must consist of strings and whole numbers. Convert it first.") from None


def _with_length(part: bytes) -> bytes:
    return len(part).to_bytes(4, "big") + part


def standard_normal(
    shape: Sequence[int], stream: np.random.Generator, *, dtype: "torch.dtype", device: "torch.device"
) -> "torch.Tensor":
    """Standard normal noise, drawn in float64 for float64 tensors and in float32 for all others, then converted.

    Low-precision parameters get noise that was drawn in float32 and rounded once, never drawn in low precision.
    """
    import torch  # here, since streams alone do not need it

    precision = np.float64 if dtype == torch.float64 else np.float32
    drawn = stream.standard_normal(tuple(shape), dtype=precision)
    return torch.from_numpy(np.asarray(drawn)).to(device=device, dtype=dtype)
