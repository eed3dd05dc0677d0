"""Noise on many tensors of a GPU in one launch: small layers would wait longer for launches than for their noise."""

import functools
import importlib.util
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tacit.core.chacha import Nonce
from tacit.core.errors import InputError
from tacit.core.row_sums import RowForm, RowSum


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

    The noise is that of `tacit.core.device_noise.add_normal_` with the same key and nonces. Where parameters are given,
    the launch takes a step of plain gradient descent with the means as well. Nothing of it depends on the key's value
    or on where the tensors lie: both are read on the device, so that a CUDA graph may be captured first and the table
    filled in afterwards.

    Sums of a few rows need not have been taken before: the launch takes them on the way, which costs little beside the
    noise.

    Args:
        tensors: what `fits`; the sizes stay, the places may change.
        nonces: one for each.
        fast: as for `add_normal_`.
    """

    def __init__(self, tensors: Sequence[Tensor], nonces: Sequence[Nonce], *, fast: bool = False) -> None:
        from tacit.core.kernels import chacha_normal, tiles

        self._launch = functools.partial(chacha_normal.add_normals_, fast=fast)
        device = tensors[0].device
        counts = [tiles.tiles_of(tensor.numel()) for tensor in tensors]
        firsts = [sum(counts[:place]) for place in range(len(counts))]
        self._sizes = [tensor.numel() for tensor in tensors]
        self._rows = [
            [size, first, *map(chacha_normal.signed, nonce)]
            for size, first, nonce in zip(self._sizes, firsts, nonces, strict=True)
        ]
        self._table = torch.zeros(len(counts), chacha_normal.COLUMNS, dtype=torch.int64, device=device)
        self._owners = torch.arange(len(counts), dtype=torch.int32).repeat_interleave(torch.tensor(counts)).to(device)
        self._facts: object = None

    @property
    def pointing(self) -> object:
        """What it points to, another object whenever that has changed."""
        return self._facts

    def point_to(
        self,
        tensors: Sequence[Tensor],
        descent: Sequence[tuple[Tensor, float]] | None = None,
        sums: Sequence[RowSum | None] | None = None,
    ) -> None:
        r"""Says where the tensors of the launches to come lie.

        Args:
            tensors: of the sizes that the table was made for.
            descent: for each of them a parameter and its rate; the launch then also takes the step p - rate v.
            sums: for each of them the sum that is still to be taken, of one form; None for what is there already.
        """
        places = [tensor.data_ptr() for tensor in tensors]
        targets = [(0, 0.0)] * len(places) if descent is None else [(p.data_ptr(), rate) for p, rate in descent]
        open_sums = [None] * len(places) if sums is None else sums
        sources = [_addresses(each) for each in open_sums]
        if self._facts == (places, targets, sources):
            return
        self._check([*tensors, *(parameter for parameter, _ in descent or ())])
        self._check_rows(open_sums)
        rows = [
            [place, *row, target, _bits(rate), *source]
            for place, row, (target, rate), source in zip(places, self._rows, targets, sources, strict=True)
        ]
        self._facts = None  # whoever is interrupted between the two says it again
        self._table.copy_(torch.tensor(rows, dtype=torch.int64))
        self._facts = places, targets, sources

    def add_(self, scale: float, divisor: float, key: Tensor, form: RowForm | None = None) -> None:
        """Adds ``scale`` times standard normal noise from ``key``, eight int32 words on the device, and divides.

        ``form`` is that of the sums to be taken, which the table then points to; None where all were taken.
        """
        with torch.cuda.device_of(self._table):  # type: ignore[no-untyped-call]
            self._launch(self._table, self._owners, scale, divisor, key, form)

    def _check(self, tensors: Sequence[Tensor]) -> None:
        whole = all(tensor.is_contiguous() and tensor.dtype == torch.float32 for tensor in tensors)
        if [tensor.numel() for tensor in tensors] != self._sizes * (len(tensors) // len(self._sizes)) or not whole:
            raise InputError("tensors: are not of the sizes that the table was made for. Make another one.")

    def _check_rows(self, sums: Sequence[RowSum | None]) -> None:
        for size, each in zip(self._sizes, sums, strict=True):
            if each is not None and not _can_be_taken(each, size):
                raise InputError(
                    f"sums: has rows of shape {tuple(each.rows.shape)}, must be contiguous ones of {size} numbers, "
                    "with a weight in float32 and a flag for each. Take the sum before."
                )


def _can_be_taken(each: RowSum, size: int) -> bool:
    count = each.rows.shape[:1]
    return (
        each.rows.shape[1] == size
        and each.weights.shape == each.keep.shape == count
        and each.weights.dtype == torch.float32
        and each.keep.dtype == torch.bool
        and all(part.is_contiguous() for part in (each.rows, each.weights, each.keep))
    )


def _addresses(each: RowSum | None) -> tuple[int, int, int]:
    if each is None:
        return 0, 0, 0
    return each.rows.data_ptr(), each.weights.data_ptr(), each.keep.data_ptr()


def _bits(number: float) -> int:
    """The number in float32, as the whole number with the same bits."""
    return int(np.float32(number).view(np.int32))
