"""Runs the noise kernels in Triton's interpreter, in a process of its own, and saves what they computed.

Triton reads TRITON_INTERPRET when it is imported, so that one process cannot hold both kinds. Called as
``TRITON_INTERPRET=1 python interpreted_noise.py WORDS.npy OUT.npz``; `WORDS` holds 128 triples of words for Box-Muller.
"""

import sys

import numpy as np
import torch
import triton
import triton.language as tl
from random123 import ANSWERS
from rfc8439 import VECTORS

from tacit.core.chacha import Nonce
from tacit.core.device_noise import key_tensor
from tacit.core.kernels import chacha_normal
from tacit.core.kernels.chacha_normal import _normals
from tacit.core.noise_table import NoiseTable
from tacit.core.row_sums import RowForm, RowSum

KEY = bytes(range(7, 39))
NONCE = (2**32 - 1, 0, 2**31)
COUNT = 1700  # a whole tile of 1280 values and a part of the next
GUARD = 20
SCALE = 0.7
MANY = {3: (1, 2, 3), COUNT: NONCE, 1280: (2**31, 5, 2**32 - 1)}  # sizes and nonces of tensors in one launch
DIVISOR = 7.0
RATES = (0.5, 2.0, 0.125)
ROWS = 5  # of the sums that a launch takes by itself


@triton.jit
def _normals_kernel(words, out):
    lane = tl.arange(0, 128)
    high, low = tl.load(words + lane), tl.load(words + 128 + lane)
    first, second = _normals(high, low, tl.load(words + 256 + lane))
    tl.store(out + lane, first)
    tl.store(out + 128 + lane, second)


def _keystream(key: bytes, nonce: Nonce, first_block: int, blocks: int, *, fast: bool = False) -> np.ndarray:
    words = torch.zeros(16, blocks, dtype=torch.int32)
    chacha_normal.keystream_(words, key_tensor(key, device="cpu"), nonce, first_block, fast=fast)
    return words.numpy().view(np.uint32)


def _answers() -> np.ndarray:
    """Philox's, in each quarter of a block."""
    keys = [np.array(answer.key * 4, dtype="<u4").tobytes() for answer in ANSWERS]
    counters = [(answer.counter[1:], answer.counter[0]) for answer in ANSWERS]
    return np.stack([_keystream(key, *at, 1, fast=True)[:, 0] for key, at in zip(keys, counters, strict=True)])


def _noisy(values: torch.Tensor, *, fast: bool = False) -> torch.Tensor:
    chacha_normal.add_normal_(values, SCALE, key_tensor(KEY, device="cpu"), NONCE, fast=fast)
    return values


def _normals_of(words: np.ndarray) -> np.ndarray:
    out = torch.zeros(2, 128)
    _normals_kernel[(1,)](torch.from_numpy(words), out)
    return out.numpy()


def _noisy_means(*, fast: bool) -> np.ndarray:
    """Tensors with guards between them, moved once after the table was made."""
    table = NoiseTable([torch.zeros(size) for size in MANY], list(MANY.values()), fast=fast)
    guarded = [torch.full((size + GUARD,), 3.0) for size in MANY]
    table.point_to([values[:size] for values, size in zip(guarded, MANY, strict=True)])
    table.add_(SCALE, DIVISOR, key_tensor(KEY, device="cpu"))
    return torch.cat(guarded).numpy()


def _descended() -> np.ndarray:
    """Sums, then parameters, after a launch that also descends."""
    sums = [torch.full((size,), 3.0) for size in MANY]
    parameters = [torch.full((size + GUARD,), 5.0) for size in MANY]
    table = NoiseTable(sums, list(MANY.values()))
    inside = [values[:size] for values, size in zip(parameters, MANY, strict=True)]
    table.point_to(sums, list(zip(inside, RATES, strict=True)))
    table.add_(SCALE, DIVISOR, key_tensor(KEY, device="cpu"))
    return torch.cat([*sums, *parameters]).numpy()


def open_sums(dtype: torch.dtype) -> list[RowSum | None]:
    """For all tensors but the first, which holds its values; one row is not to be counted, and is not finite."""
    random = torch.Generator().manual_seed(5)
    keep = torch.tensor([True, True, False, True, True])
    found: list[RowSum | None] = [None]
    for size in list(MANY)[1:]:
        rows = torch.randn(ROWS, size, generator=random).to(dtype)
        rows[2, ::2], rows[2, 1::2] = float("nan"), float("inf")
        found.append(RowSum(rows, torch.rand(ROWS, generator=random), keep, torch.full((size,), float("nan"))))
    return found


def _taken_on_the_way(dtype: torch.dtype, *, fast: bool = False) -> np.ndarray:
    """Means, then parameters, after a launch that takes sums, adds noise and descends."""
    sums = open_sums(dtype)
    places = [torch.full((size,), 3.0) if each is None else each.total for size, each in zip(MANY, sums, strict=True)]
    parameters = [torch.full((size,), 5.0) for size in MANY]
    table = NoiseTable(places, list(MANY.values()), fast=fast)
    table.point_to(places, list(zip(parameters, RATES, strict=True)), sums)
    table.add_(SCALE, DIVISOR, key_tensor(KEY, device="cpu"), RowForm.of([each for each in sums if each is not None]))
    return torch.cat([*places, *parameters]).numpy()


def _nothing_taken() -> np.ndarray:
    """A launch that was not told to take the sums which its table points to."""
    sums = open_sums(torch.float32)
    places = [torch.full((size,), 3.0) for size in MANY]
    table = NoiseTable(places, list(MANY.values()))
    table.point_to(places, None, sums)
    table.add_(0.0, 1.0, key_tensor(KEY, device="cpu"))
    return torch.cat(places).numpy()


def main(words_file: str, out_file: str) -> None:
    guarded, fast = torch.full((2, COUNT + GUARD), 3.0)
    _noisy(guarded[:COUNT])
    _noisy(fast[:COUNT], fast=True)
    np.savez(
        out_file,
        vectors=np.stack([_keystream(v.key, v.nonce, v.counter, 1)[:, 0] for v in VECTORS]),
        last=_keystream(KEY, NONCE, 2**32 - 130, 130),
        fast_vectors=_answers(),
        fast_last=_keystream(KEY, NONCE, 2**32 - 130, 130, fast=True),
        float32=guarded.numpy(),
        fast_float32=fast.numpy(),
        many=_noisy_means(fast=False),
        fast_many=_noisy_means(fast=True),
        descended=_descended(),
        taken_bfloat16=_taken_on_the_way(torch.bfloat16),
        taken_fast=_taken_on_the_way(torch.float32, fast=True),
        nothing_taken=_nothing_taken(),
        bfloat16=_noisy(torch.full((200,), 3.0, dtype=torch.bfloat16)).float().numpy(),
        normals=_normals_of(np.load(words_file)),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
