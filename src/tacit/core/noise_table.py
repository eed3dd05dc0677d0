"""Noise on many tensors of a GPU in one launch: small layers would wait longer for launches than for their noise."""

import functools
import importlib.util
from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.chacha import Nonce
from tacit.core.errors import InputError


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def fits(tensors: Sequence[Tensor]) -> bool:
    """Whether one launch can serve these tensors: float32, contiguous, on one GPU that Triton knows."""
    first = tensors[0]
    return (
        first.is_cuda
        and _has_triton()
        and all(
            tensor.device == first.device and tensor.dtype == torch.float32 and tensor.is_contiguous()
            for tensor in tensors
        )
    )


class NoiseTable:
    r"""Turns sums into noisy means, :math:`v \leftarrow (v + s z) / L`, all of them in one launch.

    The noise is that of `tacit.core.device_noise.add_normal_` with the same key and nonces. Nothing of the launch
    depends on the key's value or on where the tensors lie: both are read on the device, so that a CUDA graph may be
    captured first and the table filled in afterwards.

    Args:
        tensors: what `fits`; the sizes stay, the places may change.
        nonces: one for each.
    """

    def __init__(self, tensors: Sequence[Tensor], nonces: Sequence[Nonce]) -> None:
        from tacit.core.kernels import chacha_normal

        self._launch = chacha_normal.add_normals_
        device = tensors[0].device
        tiles = [chacha_normal.tiles_of(tensor.numel()) for tensor in tensors]
        words = [[chacha_normal.signed(word) for word in nonce] for nonce in nonces]
        firsts = [sum(tiles[:place]) for place in range(len(tiles))]
        self._sizes = [tensor.numel() for tensor in tensors]
        self._rows = [[0, size, first, *nonce] for size, first, nonce in zip(self._sizes, firsts, words, strict=True)]
        self._table = torch.tensor(self._rows, dtype=torch.int64).to(device)
        self._owners = torch.arange(len(tiles), dtype=torch.int32).repeat_interleave(torch.tensor(tiles)).to(device)
        self._places: tuple[int, ...] = ()

    def point_to(self, tensors: Sequence[Tensor]) -> None:
        """Says where the tensors of the launches to come lie."""
        places = tuple(tensor.data_ptr() for tensor in tensors)
        if places == self._places:
            return
        whole = all(tensor.is_contiguous() and tensor.dtype == torch.float32 for tensor in tensors)
        if [tensor.numel() for tensor in tensors] != self._sizes or not whole:
            raise InputError("tensors: are not of the sizes that the table was made for. Make another one.")
        rows = [[place, *row[1:]] for place, row in zip(places, self._rows, strict=True)]
        self._table.copy_(torch.tensor(rows, dtype=torch.int64))
        self._places = places

    def add_(self, scale: float, divisor: float, key: Tensor) -> None:
        """Adds ``scale`` times standard normal noise from ``key``, eight int32 words on the device, and divides."""
        with torch.cuda.device_of(self._table):  # type: ignore[no-untyped-call]
            self._launch(self._table, self._owners, scale, divisor, key)
