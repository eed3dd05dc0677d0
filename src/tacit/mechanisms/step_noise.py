"""The noise of a training step: on all gradients at once, in place, where they are."""

import contextlib
import dataclasses
import threading
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tacit.core.chacha import Nonce, nonces_for
from tacit.core.compiled_noise import Adder, compiled_adder
from tacit.core.device_noise import add_normal_, key_tensor
from tacit.core.randomness import Randomness
from tacit.core.validation import check_positive
from tacit.mechanisms.gaussian import Gaussian

# A scale is rounded to float32 with the values; so much more makes sure that it is not rounded below itself.
_ROUNDING = 1 + 2.0**-23


class StepNoise:
    r"""Turns sums into noisy means: :math:`v \leftarrow (v + N(0, s^2)) / L`, in place.

    The noise of a step comes from ChaCha20 under a key that belongs to the run and the step alone, with a nonce for
    each parameter, so nothing is drawn twice whatever the chunking, the engine or the device.

    On a GPU nothing waits for the device, and where the sums lie in the same places as in the step before, as those
    of a captured step do, all launches are replayed as one. The sums must be finite: engines see to that, and where
    checking costs no wait (on the CPU) it is done.

    Args:
        mechanism: its scale is that of the noise on each coordinate, from the sensitivity of all sums together.
        divisor: L, a public constant.
    """

    def __init__(self, mechanism: Gaussian, divisor: float) -> None:
        self._mechanism, self._divisor = mechanism, check_positive("divisor", divisor)
        self._captured: _Captured | None = None
        self._previous: tuple[int, ...] = ()
        self._nonces: dict[str, Nonce] = {}
        self._compiled: Adder | None = None

    def compile(self, *, wait: bool) -> None:
        """Compiles the noise's arithmetic for the CPU, in the background unless told to wait."""
        thread = threading.Thread(target=self._compile, daemon=True)
        thread.start()
        if wait:
            thread.join()

    def _compile(self) -> None:
        with contextlib.suppress(Exception):  # without a compiler the ordinary way does
            self._compiled = compiled_adder()

    def apply_(self, sums: Mapping[str, Tensor], randomness: Randomness, step: int) -> None:
        """Adds the noise of one step and divides."""
        if list(self._nonces) != list(sums):  # in order, too
            self._nonces = nonces_for(list(sums))
        values = [_dense(tensor) for tensor in sums.values()]
        key = randomness.device_key("noise", step)
        places = tuple(tensor.data_ptr() for tensor in values)
        device = values[0].device
        if self._captured is not None and self._captured.places == places:
            self._captured.replay(key)
        elif _capturable(values) and places == self._previous:
            self._captured = _Captured(self, values, places, key)
            self._captured.replay(key)
        else:
            self._check_finite(values)
            self.add_and_divide(values, key_tensor(key, device=device))
        self._previous = places

    def add_and_divide(self, values: Sequence[Tensor], key: Tensor) -> None:
        """What a step does to its sums; nothing here depends on the key's value."""
        scale = self._mechanism.scale
        if scale:
            for tensor, nonce in zip(values, self._nonces.values(), strict=True):
                add = self._compiled or add_normal_
                add(tensor, scale if tensor.dtype == torch.float64 else scale * _ROUNDING, key, nonce)
        torch._foreach_div_(list(values), self._divisor)

    def _check_finite(self, values: Sequence[Tensor]) -> None:
        for tensor in values:
            if not tensor.is_cuda:
                self._mechanism.check_finite(tensor)


@dataclasses.dataclass(init=False)
class _Captured:
    """The launches of one step, captured for sums that stay in their places."""

    places: tuple[int, ...]

    def __init__(self, noise: StepNoise, values: Sequence[Tensor], places: tuple[int, ...], key: bytes) -> None:
        self.places = places
        self._key = key_tensor(key, device=values[0].device)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            noise.add_and_divide(values, self._key)

    def replay(self, key: bytes) -> None:
        self._key.copy_(key_tensor(key, device="cpu"), non_blocking=True)
        self._graph.replay()


def _capturable(values: Sequence[Tensor]) -> bool:
    return all(tensor.is_cuda and tensor.dtype != torch.float64 for tensor in values)


def _dense(tensor: Tensor) -> Tensor:
    """A contiguous view of the same numbers, its dimensions in the order in which they lie in memory."""
    if tensor.is_contiguous():
        return tensor
    strides = tensor.stride()
    return tensor.permute(sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], dim)))
