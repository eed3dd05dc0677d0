"""The noise of a training step: on all gradients at once, in place, where they are."""

import contextlib
import functools
import threading
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from tacit.core import noise_table
from tacit.core.chacha import Nonce, nonces_for
from tacit.core.compiled_noise import Adder, compiled_adder
from tacit.core.device_noise import add_normal_, key_tensor
from tacit.core.noise_table import NoiseTable
from tacit.core.randomness import Randomness
from tacit.core.row_sums import RowForm, RowSum
from tacit.core.validation import check_positive
from tacit.mechanisms.gaussian import Gaussian

# A scale is rounded to float32 with the values; so much more makes sure that it is not rounded below itself.
_ROUNDING = 1 + 2.0**-23


class StepNoise:
    r"""Turns sums into noisy means: :math:`v \leftarrow (v + N(0, s^2)) / L`, in place.

    The noise of a step comes from ChaCha20 under a key that belongs to the run and the step alone, with a nonce for
    each parameter, so nothing is drawn twice whatever the chunking, the engine or the device. In the fast mode of
    `Randomness` it comes from Philox, laid out in the same way.

    On a GPU nothing waits for the device and all sums take one launch, which `launch` also gives to whoever captures
    it. The sums must be finite: engines see to that, and where checking costs no wait (on the CPU) it is done.

    Args:
        mechanism: its scale is that of the noise on each coordinate, from the sensitivity of all sums together.
        divisor: L, a public constant.

    Attributes:
        table: what launches read, where there are any; another one once names or generator have changed.
    """

    def __init__(self, mechanism: Gaussian, divisor: float) -> None:
        self._mechanism, self._divisor = mechanism, check_positive("divisor", divisor)
        self._nonces: dict[str, Nonce] = {}
        self._fast = False
        self.table: NoiseTable | None = None
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
        self._check_finite(sums.values())
        if randomness.fast != self._fast:
            self._fast, self.table = randomness.fast, None
        self.point_to(sums)
        key = key_tensor(randomness.noise_key(step), device=next(iter(sums.values())).device)
        if self.table is not None:
            self.launch(key)
        else:
            self._add_and_divide([_dense(tensor) for tensor in sums.values()], key)

    def point_to(
        self,
        sums: Mapping[str, Tensor],
        descent: Mapping[str, tuple[Tensor, float]] | None = None,
        open_sums: Mapping[str, RowSum] | None = None,
    ) -> None:
        """Says where the sums of the next `launch` lie, where there is such a launch for them.

        Args:
            sums: as for `apply_`.
            descent: a parameter and its rate for each, where the launch shall also take a step of plain descent.
            open_sums: those of the sums that the launch has to take first, all of one form.
        """
        if list(self._nonces) != list(sums):  # in order, too
            self._nonces, self.table = nonces_for(list(sums)), None
        if not next(iter(sums.values())).is_cuda:
            return
        values = [_dense(tensor) for tensor in sums.values()]
        if self.table is None and noise_table.fits(values):
            self.table = NoiseTable(values, list(self._nonces.values()), fast=self._fast)
        if self.table is not None:
            steps = None if descent is None else [descent[name] for name in sums]
            self.table.point_to(values, steps, [open_sums.get(name) for name in sums] if open_sums else None)

    @property
    def launches(self) -> bool:
        """Whether the sums that were last pointed to take one launch."""
        return self.table is not None

    @property
    def pointing(self) -> object:
        """What the next launch works on, another object whenever that has changed."""
        return None if self.table is None else self.table.pointing

    def launch(self, key: Tensor, form: RowForm | None = None) -> None:
        """Adds noise to the sums that were pointed to, divides, and descends: one launch that a CUDA graph may hold.

        Where the sums lie and what the key is are both read on the device when the launch runs. The generator is that
        of the last `apply_`, and the key must be for it. ``form`` is that of the open sums, which it takes first.
        """
        assert self.table is not None
        self.table.add_(self._mechanism.scale * _ROUNDING, self._divisor, key, form)

    def _add_and_divide(self, values: Sequence[Tensor], key: Tensor) -> None:
        add = functools.partial(add_normal_, fast=True) if self._fast else self._compiled or add_normal_
        if self._mechanism.scale:
            for tensor, nonce in zip(values, self._nonces.values(), strict=True):
                add(tensor, self._scale_for(tensor), key, nonce)
        torch._foreach_div_(list(values), self._divisor)

    def _scale_for(self, tensor: Tensor) -> float:
        scale = self._mechanism.scale
        return scale if tensor.dtype == torch.float64 else scale * _ROUNDING

    def _check_finite(self, values: Iterable[Tensor]) -> None:
        for tensor in values:
            if not tensor.is_cuda:
                self._mechanism.check_finite(tensor)


def _dense(tensor: Tensor) -> Tensor:
    """A contiguous view of the same numbers, its dimensions in the order in which they lie in memory."""
    if tensor.is_contiguous():
        return tensor
    strides = tensor.stride()
    return tensor.permute(sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], dim)))
